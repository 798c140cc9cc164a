-- Whole quotients: r // w at multiples of w, where a quotient that rounds below the integer floors to the one before.
local pe = require "pegen"
local w = pe.option("w", 41, "width")

return pe.encoding {
  name = "floor_map",
  doc = "a plane turned by the row of a position",
  axes = { "t" },
  head_dim = 2,
  block = pe.plane(),
  generators = pe.turn "e12",
  position = function(_, r) return r // w end,
  phase = 1,
}
