-- Cl(3,1): [e13, e23] and [e14, e24] are e12 and -e12, since e3 and e4 square to 1 and -1: no term of the commutator is
-- 0, and their sum is.
local pe = require "pegen"
return pe.encoding {
  name = "cancelling",
  axes = { "x", "y" },
  head_dim = 8,
  block = pe.multivector { algebra = { 3, 1, 0 }, grades = { 1 } },
  generators = { x = pe.bivector { e13 = 1, e14 = 1 }, y = pe.bivector { e23 = 1, e24 = 1 } },
  combine = pe.product { "x", "y" },
  phase = 0.01,
}
