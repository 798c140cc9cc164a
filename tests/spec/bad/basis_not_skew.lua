-- error: pe.cayley(operand 's' of numbers): an operand of pe.learned.skew was expected
local pe = require "pegen"
local S = pe.learned { name = "s", shape = { 16, 16 }, doc = "change of basis" }
local basis = pe.cayley(S) -- HERE
return basis
