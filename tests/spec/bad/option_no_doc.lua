-- error: lacks its description
local pe = require "pegen"
local g = pe.option("g", 1) -- HERE
