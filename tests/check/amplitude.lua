-- Amplitudes that are learned and of the position, of blocks and heads, of q and k alike or of each.
local pe = require "pegen"
local kind = pe.option("kind", "product", "how axes are combined", { "product", "chordal", "still" })
local sides = pe.option("sides", false, "another amplitude of k than of q")
local heads = 2
local s = pe.learned { name = "s", shape = { "heads", "blocks" }, doc = "strength", test_scale = 0.5 }
local w = pe.learned { name = "w", shape = { "axes", "blocks", 3 }, doc = "what turns", test_scale = 0.5 }

local function gain(r, i, head) return pe.exp(s(head, i) * pe.sin(r.x) * pe.cos(r.y * (i + 1))) end

return pe.encoding {
  name = "amplitude",
  axes = { "x", "y" },
  head_dim = 20,
  heads = heads,
  block = pe.vector(3),
  generators = function(a, i) return pe.bivector { e23 = w(a, i, 0), e31 = w(a, i, 1), e12 = w(a, i, 2) } end,
  phase = kind == "still" and 0 or 1,
  combine = kind == "chordal" and pe.chordal or pe.product { "y", "x" },
  amplitude = sides and { q = gain, k = function(r, i, head) return 2 + pe.tanh(s(head, i) * r.x) end } or gain,
}
