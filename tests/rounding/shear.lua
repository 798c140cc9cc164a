-- Planes with a vector that squares to 0: of a pair of registers one's channels stay as they are.
local pe = require "pegen"
return pe.encoding {
  name = "shear",
  axes = { "x" },
  head_dim = 72,
  block = pe.multivector { algebra = { 1, 0, 1 }, grades = { 1 } },
  generators = pe.bivector { e12 = 1 },
  combine = pe.sum,
  phase = 0.25,
}
