-- Rotations of pairs that leave them: what they are made of is learned in each head and block, an axis each or one
-- generator for both, beside a bias that reads one of the same numbers.
local pe = require "pegen"

local D = pe.option("head_dim", 20, "channels")
local heads = pe.option("heads", 2, "heads")
-- Planes that listen to both axes, or vectors of 4 channels that turn in a plane for each.
local size = pe.option("block", 2, "channels of a block", { 2, 4 })
local amplitude = pe.option("amplitude", 1.5, "of the rotated channels")
local rate = pe.learned { name = "rate", shape = { "axes", "heads", "blocks" },
  doc = "of each axis, in phases and in the bias" }

return pe.encoding {
  name = "rows_turned",
  role = "pairwise",
  axes = { "x", "y" },
  head_dim = D,
  heads = heads,
  value_dim = pe.option("value_dim", 12, "channels of a value"),
  span = { 1, D - 2 },
  block = size == 2 and pe.plane() or pe.vector(4),
  layout = "split",
  generators = size == 2 and pe.turn "e12" or { x = pe.turn "e12", y = pe.turn "e34" },
  combine = size == 2 and pe.mean or pe.product { "x", "y" },
  amplitude = amplitude,
  phase = function(a, i, head) return (1 + rate(a, head, i)) / (1 + i) end,
  bias = function(delta, head)
    local far = pe.abs(delta.x) + pe.sqrt(1 + delta.y ^ 2)
    return pe.where(delta.y, -12, pe.masked, -0.1 * pe.abs(rate(0, head, 0)) * far)
  end,
}
