-- error: is no bivector
local pe = require "pegen"
local b = pe.bivector { e1 = 1 } -- HERE
