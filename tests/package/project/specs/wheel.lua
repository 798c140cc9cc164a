-- A description of the project's own, in two files.
local pe = require "pegen"
local frequencies = require "frequencies"

local base = pe.option("base", 100.0, "frequency base")

return pe.encoding {
  name = "wheel",
  doc = "Planes turned by one coordinate.",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return frequencies.of(base, i) end,
}
