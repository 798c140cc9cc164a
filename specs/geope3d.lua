-- GeoPE in three dimensions.
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", section 3.3, eq. 5-6 and
-- appendix G: depth, height and width turn 3-vectors about i, j and k, and their rotors are averaged in the
-- Lie algebra; theta = r * base^(2i/D) radians (section 3.1), D the channels of a head.
-- The paper prints a growing schedule, base^(+2i/D); exponent_sign = 1 is that, the default. -1 decays as RoPE does.
-- The paper's average is the exponential of the mean of the generators. mean = "chordal" is the rotation nearest to the
-- mean of the axes' rotations instead, "karcher" some steps towards their Riemannian mean (pe.chordal, pe.karcher).
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 100.0, "frequency base lambda", { range = { 2.0, 1e6 } })
local sign = pe.option("exponent_sign", 1, "+1: frequencies grow, as printed; -1: they decay, as in RoPE", { 1, -1 })
local layout = pe.option("layout", "interleaved", "triples (3i, 3i+1, 3i+2) or (i, i + n, i + 2n)", { "interleaved",
  "split" })
local mean = pe.option("mean", "generators", "of generators, as in the paper; of rotations: chordal, karcher", {
  "generators", "chordal", "karcher" })
local steps = pe.option("steps", 8, "of mean=karcher: steps from the chordal mean", { needs = { mean = "karcher" } })

local rules = { generators = pe.mean, chordal = pe.chordal, karcher = pe.karcher { steps = steps } }

return pe.encoding {
  name = "geope3d",
  doc = "GeoPE, three axes (eq. 5-6)",
  axes = { "d", "h", "w" },
  head_dim = D,
  block = pe.vector(3),
  layout = layout,
  generators = { d = pe.quaternion "i", h = pe.quaternion "j", w = pe.quaternion "k" },
  combine = rules[mean],
  phase = function(_, i) return base ^ (sign * 2 * i / D) end,
}
