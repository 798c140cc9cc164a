-- error: positive whole number was expected
local pe = require "pegen"
local g = pe.learned { name = "g", shape = { "rows" }, doc = "d" } -- HERE
