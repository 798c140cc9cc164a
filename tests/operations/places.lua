-- What expressions are put into: one small description for each kind of place (operations_test.c).
local pe = require "pegen"

local place = pe.option("place", "blades", "kind of description", { "blades", "dense", "small", "matrix", "add",
  "columns", "fused", "bias", "rotation" })

local numbers = pe.learned { name = "numbers", shape = { "heads", 2 }, doc = "numbers", test_scale = 2.0 }

local encoding = {
  name = "operations",
  axes = { "x", "y" },
  head_dim = 12,
  heads = 2,
}

if place == "blades" or place == "rotation" then
  encoding.block = pe.vector(3)
  encoding.generators = { x = pe.quaternion "i", y = pe.quaternion "j" }
  encoding.combine = pe.product { "x", "y" }
  encoding.phase = function(axis, i, head) return 0.125 + (i + head) / 16 + 0 * numbers(head, 0) end
elseif place == "dense" or place == "small" or place == "matrix" then
  local b = ({ dense = 6, small = 3, matrix = 12 })[place]
  encoding.block = pe.dense(b)
  encoding.generators = pe.learned.skew(b, { name = "raw", shape = { "axes", "heads", "blocks" }, from = "upper",
    doc = "generators", test_scale = 0.5 })
  encoding.combine = pe.sum
  encoding.phase = function(axis, i, head) return 0.125 + (i + head) / 16 end
elseif place == "add" then
  encoding.add = function(r, channel, head) return channel / 8 + numbers(head, 0) * r.x / 64 end
elseif place == "bias" then
  encoding.bias = function(delta, head) return numbers(head, 0) * delta.x / 64 end
else
  local free = pe.input { name = "free", shape = { 19 }, doc = "coefficients", test_scale = 1.0 }
  encoding.bias = pe.polynomial {
    degree = 1,
    terms = 19,
    value = function(delta, l, head) return free(l) * numbers(head, 0) * delta.x / 64 end,
  }
end
if place == "rotation" or place == "fused" then encoding.role = "pairwise" end
if place == "rotation" or place == "fused" or place == "bias" then encoding.value_dim = 8 end

return pe.encoding(encoding)
