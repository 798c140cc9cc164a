-- Phases that grow fast: `check` goes where they have digits, its bounds follow their rounding, and `explain` says so.
local pe = require "pegen"
local rate = pe.option("rate", 1e9, "radians per unit of position of the fastest block")
local heads = pe.option("heads", 1, "heads, each slower than the one before")

return pe.encoding {
  name = "fast",
  doc = "planes that turn fast",
  axes = { "x" },
  head_dim = 16,
  heads = heads,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i, head) return rate / 10 ^ (i + (head or 0)) end,
}
