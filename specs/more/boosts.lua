-- Boosts: hyperbolic turns of Cl(1,1), which change lengths and keep those of Minkowski's form x0^2 - x1^2.
-- "HoPE: Hyperbolic Rotary Positional Encoding for Stable Long-Range Dependency Modeling in Large Language Models" (Dai
-- et al.), its matrices B without the damping: by the rapidity u = theta r, theta = scale base^(-2i/D),
--   y0 = cosh(u) x0 - sinh(u) x1, y1 = cosh(u) x1 - sinh(u) x0.
-- Boosts are symmetric, so that a score of rows that were both boosted sees the sum of their positions; with keys from
-- the kernel of -D inverse=true it sees the difference. They grow as cosh(u): keep rapidities small.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base")
local scale = pe.option("scale", 0.01, "rapidity per unit of position of the first pair")
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })

return pe.encoding {
  name = "boosts",
  doc = "hyperbolic turns, boosts of Cl(1,1) (Dai et al., HoPE, without its damping)",
  axes = { "t" },
  head_dim = D,
  block = pe.multivector { algebra = { 1, 1, 0 }, grades = { 1 } },
  layout = layout,
  generators = pe.bivector { e12 = 1 },
  phase = function(_, i) return scale * base ^ (-2 * i / D) end,
}
