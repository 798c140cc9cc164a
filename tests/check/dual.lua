-- Turns and boosts of which q takes the inverse transpose: what is learned of both, in all grades, turned back or not.
local pe = require "pegen"
local combine = pe.option("combine", "product", "how axes are combined", { "product", "symmetric" })
local gains = pe.option("gains", false, "an amplitude of each side, too")
local w = pe.learned { name = "w", shape = { "axes", "blocks", 3 }, doc = "what turns and boosts", test_scale = 0.5 }

return pe.encoding {
  name = "dual",
  axes = { "x", "t" },
  head_dim = 33,
  block = pe.multivector { algebra = { 3, 1, 0 }, grades = { 1, 2 } },
  generators = {
    x = function(_, i) return pe.bivector { e23 = w("x", i, 0), e31 = w("x", i, 1), e12 = w("x", i, 2) } end,
    t = function(_, i) return pe.bivector { e14 = w("t", i, 0), e24 = w("t", i, 1), e34 = w("t", i, 2) } end,
  },
  phase = function(axis) return axis == "x" and 1 or 0.2 end,
  combine = pe[combine] { "t", "x" },
  amplitude = gains and { q = function(r) return 1 + r.t ^ 2 end, k = 2 } or nil,
  sides = "dual",
}
