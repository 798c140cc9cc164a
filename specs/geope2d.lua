-- GeoPE in two dimensions.
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", section 3.2, eq. 3-4: height and width turn
-- 3-vectors about j and k, and their rotors are averaged in the Lie algebra; theta = r * base^(2i/D) radians
-- (section 3.1), D the channels of a head.
-- The paper prints a growing schedule, base^(+2i/D); exponent_sign = 1 is that, the default. -1 decays as RoPE does.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 100.0, "frequency base lambda", { range = { 2.0, 1e6 } })
local sign = pe.option("exponent_sign", 1, "+1: frequencies grow, as printed; -1: they decay, as in RoPE", { 1, -1 })
local layout = pe.option("layout", "interleaved", "triples (3i, 3i+1, 3i+2) or (i, i + n, i + 2n)", { "interleaved",
  "split" })

return pe.encoding {
  name = "geope2d",
  doc = "GeoPE, two axes (eq. 3-4)",
  axes = { "h", "w" },
  head_dim = D,
  block = pe.vector(3),
  layout = layout,
  generators = { h = pe.quaternion "j", w = pe.quaternion "k" },
  combine = pe.mean,
  phase = function(_, i) return base ^ (sign * 2 * i / D) end,
}
