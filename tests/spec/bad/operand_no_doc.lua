-- error: lacks the field 'doc'
local pe = require "pegen"
local g = pe.learned { name = "g", shape = { 1 } } -- HERE
