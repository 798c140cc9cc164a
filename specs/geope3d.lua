-- GeoPE in three dimensions.
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", section 3.3, eq. 5-6 and
-- appendix G: depth, height and width turn 3-vectors about i, j and k, and their rotors are averaged in the
-- Lie algebra; theta = r * base^(2i/D) radians (section 3.1), D the channels of a head.
-- The paper prints a growing schedule, base^(+2i/D); exponent_sign = 1 is that, the default. -1 decays as RoPE does.
-- The paper's average is the exponential of the mean of the generators. mean = "chordal" is the rotation nearest to the
-- mean of the axes' rotations instead, "karcher" some steps towards their Riemannian mean (pe.chordal, pe.karcher).
local pe = require "pegen"
local geope = require "geope"

local axes = { "d", "h", "w" }

return pe.encoding {
  name = "geope3d",
  doc = "GeoPE, three axes (eq. 5-6)",
  axes = axes,
  head_dim = geope.head_dim,
  block = pe.vector(3),
  layout = geope.layout_of_triples(),
  generators = { d = pe.quaternion "i", h = pe.quaternion "j", w = pe.quaternion "k" },
  combine = geope.combine_of(axes),
  phase = geope.phase,
}
