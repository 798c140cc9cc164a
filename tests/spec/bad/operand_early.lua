-- error: only inside the functions
local pe = require "pegen"
local f = pe.learned { name = "f", shape = { "axes", "heads", "blocks", 3 }, doc = "d" }
local x = f(0, 0, 0, 0) -- HERE
