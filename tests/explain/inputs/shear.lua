-- A plane with a vector that squares to 0: e1 is moved along e3, which is a shear and no stretch.
local pe = require "pegen"
return pe.encoding {
  name = "shear",
  axes = { "x" },
  head_dim = 9,
  block = pe.multivector { algebra = { 2, 0, 1 }, grades = { 1 } },
  generators = pe.bivector { e13 = 1 },
  combine = pe.sum,
  phase = 0.01,
}
