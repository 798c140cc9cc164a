-- A bounded map of positions: no position reaches the phases that the sweep asks for.
local pe = require "pegen"
local w = pe.option("w", 3, "width")

return pe.encoding {
  name = "bounded_map",
  doc = "a plane turned by the column of a position",
  axes = { "t" },
  head_dim = 2,
  block = pe.plane(),
  generators = pe.turn "e12",
  position = function(_, r) return r % w end,
  phase = 1,
}
