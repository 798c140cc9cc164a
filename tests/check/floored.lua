-- What nothing is gained of: operands that only floors read, axes that never turn, turns that leave every channel of a
-- block alone.
local pe = require "pegen"

local kinds = { "turned", "still", "added", "scalars" }
local kind = pe.option("kind", "turned", "what an element of the operand is for", kinds)
local w = pe.learned { name = "w", shape = { "axes", "blocks" }, doc = "an element of a block", test_scale = 4.0 }

if kind == "added" then
  return pe.encoding {
    name = "floored",
    doc = "whole numbers of the position",
    axes = { "h", "w" },
    head_dim = 24,
    add = function(r, channel)
      return pe.floor(w("h", channel)) * pe.sin(r.h) + pe.floor(w("w", channel)) * pe.sin(r.w)
    end,
  }
end

return pe.encoding {
  name = "floored",
  doc = "turns by whole numbers, about one axis of two, or of what no turn moves",
  axes = { "h", "w" },
  head_dim = 24,
  block = pe.multivector { algebra = { 3, 0, 0 }, grades = kind == "scalars" and { 0, 3 } or { 1 } },
  generators = { h = pe.turn "e12", w = pe.turn "e23" },
  combine = pe.product { "w", "h" },
  phase = function(axis, i)
    if kind == "turned" then return pe.floor(w(axis, i)) end
    return kind == "still" and axis == "w" and 0 or w(axis, i)
  end,
}
