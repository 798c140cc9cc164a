-- Three kinds of blocks and channels that pass through: time by planes, space by 3-vectors, a boost of both, and a rest.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local H = pe.option("heads", 1, "heads that differ")
local speed = pe.learned { name = "speed", shape = { "heads", "blocks" }, doc = "frequencies of the planes",
  units = "radians per unit of position" }
local axis = pe.learned { name = "axis", shape = { "axes", 3 }, doc = "what space turns about", test_scale = 0.5 }

return pe.encoding {
  name = "video",
  doc = "time by planes, space by 3-vectors",
  axes = { "t", "y", "x" },
  head_dim = D,
  heads = H,
  parts = {
    { span = { 0, 18 }, axes = { "t" }, block = pe.plane(), layout = "split", generators = pe.turn "e12",
      phase = function(_, i, head) return speed(head, i) end, amplitude = 1.25 },
    { span = { 18, 3 } },
    { span = { 21, 31 }, axes = { "y", "x" }, block = pe.vector(3), combine = pe.mean,
      generators = function(a, _) return pe.bivector { e12 = axis(a, 0), e13 = axis(a, 1), e23 = 1 + axis(a, 2) } end,
      phase = function(_, i) return 100 ^ (-i / 10) end },
    { span = { 52, 8 }, axes = { "x", "t" }, block = pe.multivector { algebra = { 1, 1, 0 }, blades = { "e1", "e2" } },
      generators = { x = pe.turn "e12", t = pe.turn "e12" }, combine = pe.product { "t", "x" },
      phase = function(a, i) return (a == "t" and 0.01 or 0.02) / (1 + i) end,
      amplitude = function(r, i) return 1 + r.x * r.x / (10 + i + r.x * r.x) end },
  },
}
