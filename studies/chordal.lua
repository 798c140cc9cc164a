-- GeoPE's turns of three axes, put together in three ways: for studies/chordal.toml.
--   sum      exp of the sum of the axes' generators
--   mean     exp of their mean, as GeoPE's paper has it: a third of the sum's angles
--   chordal  the rotation nearest to the mean of the axes' rotations
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 100.0, "frequency base")
local rule = pe.option("rule", "chordal", "how the axes' rotations become one", { "sum", "mean", "chordal" })

local rules = { sum = pe.sum, mean = pe.mean, chordal = pe.chordal }

return pe.encoding {
  name = "chordal",
  doc = "GeoPE's turns of three axes by sum, mean or chordal mean",
  axes = { "d", "h", "w" },
  head_dim = D,
  block = pe.vector(3),
  generators = { d = pe.quaternion "i", h = pe.quaternion "j", w = pe.quaternion "k" },
  combine = rules[rule],
  phase = function(_, i) return base ^ (-2 * i / D) end,
}
