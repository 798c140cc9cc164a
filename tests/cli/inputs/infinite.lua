-- Speeds that overflow: what turns by them is not a number.
local pe = require "pegen"

local size = pe.option("size", 3, "channels of a block", { 3, 5 })
local shape = { "axes", "blocks" }
local speed = pe.learned { name = "speed", shape = shape, doc = "logarithm of a speed", test_scale = 100000.0 }
local generator = pe.learned.skew(size, { name = "generator", shape = shape, from = "upper", doc = "raw matrices" })

return pe.encoding {
  name = "infinite",
  doc = "turns that are not numbers",
  axes = { "h", "w" },
  head_dim = 15,
  block = size == 3 and pe.vector(3) or pe.dense(size),
  generators = size == 3 and pe.turn "e12" or generator,
  combine = pe.sum,
  phase = function(axis, i) return pe.exp(speed(axis, i)) end,
}
