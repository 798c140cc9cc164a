-- GeoPE in three dimensions.
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", section 3.3, eq. 5-6 and
-- appendix G: depth, height and width turn 3-vectors about i, j and k, and their rotors are averaged in the
-- Lie algebra; theta = r * base^(2i/D) radians (section 3.1), D the channels of a head.
-- parts/geope.lua has the schedule, and what may stand in the average's place.
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
  models = {
    { "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", "arXiv 2512.04963",
      head_dim = 64 },
  },
}
