-- error: did you mean 'units'?
local pe = require "pegen"
local g = pe.learned { name = "g", shape = { 1 }, doc = "d", unit = "m" } -- HERE
