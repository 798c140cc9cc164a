-- error: "dual" goes with no 'basis' where an axis boosts
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  block = pe.multivector { algebra = { 1, 1, 0 }, grades = { 1 } },
  generators = pe.bivector { e12 = 1 },
  phase = function(_, i) return 1 / (i + 1) end,
  basis = pe.cayley(pe.learned.skew(16, { name = "S", shape = {}, from = "difference", doc = "change of basis" })),
  sides = "dual", -- HERE
}
