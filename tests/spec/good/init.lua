-- First values of every kind; a function sees an axis by its name, other indices from 0.
local pe = require "pegen"
local shape = { "axes", "heads", "blocks", 3 }
local function seen(axis, head, i, c)
  assert((axis == "h" or axis == "w") and head < 2 and i < 2 and c < 3)
  return head + i
end
local places = {}
for k, init in ipairs {
  "as one likes", 3, seen, pe.init { value = 0, doc = "zero" }, pe.init { value = seen },
  pe.init { uniform = { -1, 2 }, scale = 0.5 }, pe.init { normal = 2, same = { 1, "heads" } },
  pe.init { normal = 2, between = { -1, 5 } }, pe.init { direction = 4, scale = seen, same = { "blocks" } },
} do
  places[k] = pe.learned { name = "w" .. k, shape = shape, doc = "speeds", init = init }
end
local raw = pe.learned.skew(2, { name = "raw", shape = {}, from = "upper", doc = "raw", init = pe.init { direction = 2 } })
assert(raw)
assert(not pcall(pe.init, { uniform = { 0 } }))
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 4, heads = 2, block = pe.plane(), generators = pe.turn "e12",
  combine = pe.sum, phase = function(axis, i, head) return places[1](axis, head, i, 0) end,
}
