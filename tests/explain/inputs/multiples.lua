-- Both axes turn about one learned plane: multiples of one generator commute, whatever is learned.
local pe = require "pegen"
local u = pe.learned { name = "u", shape = { "blocks", 3 }, doc = "the plane" }
local speed = pe.learned { name = "speed", shape = { "axes", "blocks" }, doc = "radians per unit of position" }
return pe.encoding {
  name = "multiples",
  axes = { "x", "y" },
  head_dim = 12,
  block = pe.vector(3),
  generators = function(_, i) return pe.bivector { e23 = u(i, 0), e31 = u(i, 1), e12 = u(i, 2) } end,
  combine = pe.sum,
  phase = speed,
}
