-- The same boosts, of which q takes the inverse transpose: scores are relative, norms are not kept.
local pe = require "pegen"
return pe.encoding {
  name = "boost",
  axes = { "x", "y" },
  head_dim = 8,
  block = pe.multivector { algebra = { 1, 1, 0 }, grades = { 1 } },
  generators = pe.bivector { e12 = 1 },
  combine = pe.sum,
  phase = 0.01,
  sides = "dual",
}
