-- error: as its default
local pe = require "pegen"
local g = pe.option("g", nil, "doc") -- HERE
