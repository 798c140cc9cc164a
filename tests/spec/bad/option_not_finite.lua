-- error: a number was expected
-- define: g=inf
local pe = require "pegen"
local g = pe.option("g", 1.0, "doc") -- HERE
