-- Rotations of pairs that are learned, two about axes of their own in each head and block, beside a bias that reads one
-- of the same numbers: gradients of what rotates pairs.
local pe = require "pegen"

local heads = pe.option("heads", 2, "heads")
local combine = pe.option("combine", "product", "of the axes' rotations", { "product", "sum", "mean" })
local theta = combine == "product" and pe.learned { name = "theta", shape = { "axes", "heads", "blocks", 3 },
  doc = "i, j and k of an axis",
  test_scale = 0.3 }
local rate = pe.learned { name = "rate", shape = { "axes" }, doc = "of each axis, in phases and in the bias" }

return pe.encoding {
  name = "turning",
  axes = { "x", "y" },
  head_dim = pe.option("head_dim", 10, "channels"),
  heads = heads,
  role = "pairwise",
  block = pe.vector(3),
  generators = function(a, i, head)
    if combine ~= "product" then return a == "x" and pe.quaternion "i" or pe.quaternion "j" end
    return pe.quaternion "i" * theta(a, head, i, 0) + pe.quaternion "j" * theta(a, head, i, 1)
      + pe.quaternion "k" * theta(a, head, i, 2)
  end,
  combine = combine == "product" and pe.product { "x", "y" } or pe[combine],
  phase = function(a, i) return (1 + rate(a)) / (1 + i) end,
  bias = function(delta) return -0.1 * rate(0) * pe.abs(delta.x) end,
}
