-- Linear GeoPE: every pair of tokens is turned by the rotor of its own displacement.
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", section 3.3 and appendix G: with u(r) the
-- mean of the axes' rotation vectors,
--   score(i, j) = scale * sum over triples of q_i . exp(u(r_j) - u(r_i)) k_j, and the plain product of leftover
--   channels.
-- u is linear in r, so the exponent is u(r_j - r_i): GeoPE's rotor of the displacement. Exponentials of different axes
-- do not commute, so no encoding of q and k alone gives this score.
-- Axes, units and schedule are those of geope2d.lua and geope3d.lua: frequencies grow, as the paper prints them
-- (section 4.1); with exponent_sign=-1 they decay, as RoPE's. No code of the authors is public.
local pe = require "pegen"
local geope = require "geope"

local D = geope.head_dim
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local P = pe.option("axes", 2, "axes of a position: h, w or d, h, w", { 2, 3 })

local generators = { h = pe.quaternion "j", w = pe.quaternion "k" }
if P == 3 then generators.d = pe.quaternion "i" end

return pe.encoding {
  name = "lingeope",
  doc = "Linear GeoPE: GeoPE's rotor of the displacement between query and key",
  role = "pairwise",
  axes = P == 2 and { "h", "w" } or { "d", "h", "w" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  block = pe.vector(3),
  layout = geope.layout_of_triples(),
  generators = generators,
  combine = pe.mean,
  phase = geope.phase,
  models = {
    { "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", "arXiv 2512.04963" },
  },
}
