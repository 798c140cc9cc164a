-- error: listed twice
local pe = require "pegen"
local b = pe.bivector { e12 = 1, e21 = 1 } -- HERE
