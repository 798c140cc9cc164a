-- GeoPE in two dimensions.
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", section 3.2, eq. 3-4: height and width turn
-- 3-vectors about j and k, and their rotors are averaged in the Lie algebra; theta = r * base^(2i/D) radians
-- (section 3.1), D the channels of a head.
-- parts/geope.lua has the schedule, and what may stand in the average's place.
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
  models = {
    { "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", "arXiv 2512.04963",
      head_dim = 64 },
  },
}
