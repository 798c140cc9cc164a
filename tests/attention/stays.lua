-- Rotations that must stay on their pairs, a reason each.
local pe = require "pegen"

local why = pe.option("why", "phase", "what keeps them there", { "phase", "generators", "boost" })
local boost = why == "boost"

return pe.encoding {
  name = "stays",
  role = "pairwise",
  axes = { "x", "y" },
  head_dim = 6,
  block = pe.multivector { algebra = boost and { 1, 1, 1 } or { 3, 0, 0 }, grades = { 1 } },
  generators = { x = pe.turn "e12", y = why == "generators" and pe.turn "e23" or pe.turn "e12" },
  combine = pe.product { "x", "y" },
  phase = 0.1,
  values = pe.option("values", false, "values turn, too") and "same" or nil,
  position = function(_, r) return why == "phase" and r + 1 or r end,
}
