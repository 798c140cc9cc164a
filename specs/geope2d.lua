-- GeoPE in two dimensions.
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", section 3.2, eq. 3-4: height and width turn
-- 3-vectors about j and k, and their rotors are averaged in the Lie algebra; theta = r * base^(2i/D) radians
-- (section 3.1), D the channels of a head.
-- The paper prints a growing schedule, base^(+2i/D); exponent_sign = 1 is that, the default. -1 decays as RoPE does.
local pe = require "pegen"
local geope = require "geope"

local axes = { "h", "w" }

return pe.encoding {
  name = "geope2d",
  doc = "GeoPE, two axes (eq. 3-4)",
  axes = axes,
  head_dim = geope.head_dim,
  block = pe.vector(3),
  layout = geope.layout_of_triples(),
  generators = { h = pe.quaternion "j", w = pe.quaternion "k" },
  combine = geope.combine_of(axes),
  phase = geope.phase,
}
