-- Values that turn with their keys, and outputs back, beside a bias of which some operands gain.
local pe = require "pegen"

local D = pe.option("head_dim", 20, "channels")
local heads = pe.option("heads", 2, "heads")
local kind = pe.option("kind", "planes", "what turns", { "planes", "vectors", "learned" })
local rate = kind == "learned" and pe.learned { name = "rate", shape = { "axes", "heads", "blocks" },
  doc = "of phases and in the bias" }
local slope = pe.learned { name = "slope", shape = { "heads" }, doc = "of the bias" }
local is_vector = kind == "vectors"

return pe.encoding {
  name = "values",
  role = "pairwise",
  axes = { "x", "y" },
  head_dim = D,
  heads = heads,
  values = "same",
  span = { 1, D - 2 },
  block = is_vector and pe.vector(4) or pe.plane(),
  layout = "split",
  generators = is_vector and { x = pe.turn "e12", y = pe.turn "e34" } or pe.turn "e12",
  combine = is_vector and pe.product { "x", "y" } or pe.mean,
  phase = function(axis, i, head)
    if kind == "learned" then return (1 + rate(axis, head, i)) / (1 + i) end
    return (axis == "x" and 1 or -0.5) / (1 + i)
  end,
  bias = function(delta, head)
    local far = pe.abs(delta.x) + pe.sqrt(1 + delta.y ^ 2)
    local learned = kind == "learned" and pe.abs(rate("x", head, 0)) or 0.3
    return pe.where(delta.y, -12, pe.masked, -0.1 * (learned + slope(head)) * far)
  end,
}
