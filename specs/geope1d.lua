-- GeoPE on sequences: the limit of one axis.
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", appendix F, eq. 46-48: a turn about j of
-- (v_x, 0, v_z), of which the pair (v_x, v_z) is kept:
--   v_x' = cos(theta) v_x + sin(theta) v_z, v_z' = -sin(theta) v_x + cos(theta) v_z, theta = r * base^(2i/D).
-- This is RoPE with the other sense. exponent_sign = 1 is the printed growing schedule, the default; -1 decays as
-- RoPE does.
local pe = require "pegen"
local geope = require "geope"

local layout = pe.option("layout", "interleaved", "pairs (2i, 2i+1) or (i, i + n)", { "interleaved", "split" })

return pe.encoding {
  name = "geope1d",
  doc = "GeoPE, one axis (eq. 46-48)",
  axes = { "t" },
  head_dim = geope.head_dim,
  block = pe.plane(), -- e1 is v_x, e2 is v_z
  layout = layout,
  generators = pe.turn "e21",
  phase = geope.phase,
  models = {
    { "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", "arXiv 2512.04963",
      head_dim = 64 },
  },
}
