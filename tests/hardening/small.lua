-- A description that uses what the loader allocates for, and little of each.
local pe = require "pegen"
local base = pe.option("base", 100.0, "frequency base")
local freq = pe.learned { name = "freq", shape = { "axes", "blocks" }, units = "radians", doc = "phases per unit" }
return pe.encoding {
  name = "small",
  axes = { "x", "y" },
  head_dim = 8,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i) return base ^ (-i / 8) * freq(axis, i) end,
}
