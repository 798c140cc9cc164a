-- error: a bivector was expected
local pe = require "pegen"
local b = pe.turn "e12" + 1 -- HERE
