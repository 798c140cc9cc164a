-- Spherical RoPE: turns of 3-vectors about fixed axes, one after the other.
-- "A circular argument: Does RoPE need to be equivariant for vision?" (van de Geijn et al.), as
-- "Clifford Algebraic Rotary Embeddings" (CARE) prints it in section 3.3:
--   x' = Rot_x(theta r_0) Rot_z(theta r_1) x, theta = base^(-2i/D).
-- turns = "code" is the code of CARE's authors (ChasevdG/CARE, Spherical_RoPE), which turns e1 towards e3 for the
-- second axis, where the paper has e1 towards e2.
-- Neither prints the base; 100 is that of axial RoPE in vision (Heo et al.).
-- The paper has the axes h, w. One axis, and three in the same order (x, z, y), are read off it; a fourth turns about x
-- again, and so on.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local P = pe.option("axes", 2, "axes of a position: t; h, w; d, h, w; or t, d, h, w, x5, ...", { 1, 2, 3, 4, 5, 6 })
local base = pe.option("base", 100.0, "frequency base")
local sign = pe.option("exponent_sign", -1, "-1: frequencies decay, as in RoPE; +1: they grow", { 1, -1 })
local layout = pe.option("layout", "interleaved", "triples (3i, 3i+1, 3i+2) or (i, i + n, i + 2n)", { "interleaved",
  "split" })
local turns = pe.option("turns", "paper", "planes of the two axes: e23 and e12, or as in the code e23 and e13", {
  "paper", "code" })

local axes, generators = require "axes" (P), {}
local planes = turns == "paper" and { pe.quaternion "i", pe.quaternion "k", pe.quaternion "j" }
  or { pe.turn "e23", pe.turn "e13", pe.turn "e12" }
for a, name in ipairs(axes) do generators[name] = planes[(a - 1) % 3 + 1] end

return pe.encoding {
  name = "spherical",
  doc = "Spherical RoPE (van de Geijn et al.; CARE, section 3.3)",
  axes = axes,
  head_dim = D,
  block = pe.vector(3),
  layout = layout,
  generators = generators,
  combine = pe.product(axes),
  phase = function(_, i) return base ^ (sign * 2 * i / D) end,
  models = {
    { "Clifford Algebraic Rotor Embeddings: Maybe embeddings should start to CARE", "arXiv 2511.11665",
      head_dim = 64 },
  },
}
