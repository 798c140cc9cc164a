-- error: declared twice
local pe = require "pegen"
local f = pe.learned { name = "f", shape = { "axes", "heads", "blocks", 3 }, doc = "d" }
local g = pe.learned { name = "f", shape = { 3 }, doc = "d" } -- HERE
