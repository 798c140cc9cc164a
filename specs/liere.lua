-- LieRE: blocks of channels turn by the exponential of a learned skew matrix.
-- "LieRE: Lie Rotational Positional Encodings" (Ostmeier et al.), section 4:
--   R(p) = exp(sum over axes of p_a A_a), q' = R q, k' = R k; A_a learned for every head (and layer), of blocks of b
--   channels.
-- The raw parameter's upper triangle is A's; the rest of it is not read.
--
-- Positions are in [0, 1]: the first cell at 0, the last at 1 (coordinates = "inclusive", or handed over so). On images
-- larger than those of training the paper lets positions grow with the image (section 5): `cells` are those of the
-- image, and `trained` those of training, as in cells=20,20 trained=14,14 coordinates=inclusive.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with generators of their own; 1: all heads share them")
local P = pe.option("axes", 2, "axes of a position: h, w or t, h, w", { 1, 2, 3 })
local b = pe.option("block", D, "channels of a block, 2 to 64: LieRE_8, LieRE_64; what is left over passes through")
local prepare = pe.option("prepare", "float32",
  "in which rotations exp(M) are formed: within 2^-22 max(1, |M|), or within 2^-22 for any M up to 500", { "float32",
    "float64" })
local upper = ({ two_pi = 2 * pe.pi, one = 1 })[pe.option("first", "two_pi",
  "first values are uniform from 0 to this one (table 7)", { "two_pi", "one" })]
local AXES = P == 1 and { "t" } or P == 2 and { "h", "w" } or { "t", "h", "w" }
local position = pe.coordinates(AXES)

local raw = pe.learned.skew(b, {
  name = "generators",
  shape = { "axes", "heads", "blocks" },
  from = "upper",
  doc = "raw generator of an axis: A is its upper triangle minus the transpose of that",
  units = "radians per unit of position",
  source = "LieRE, section 4",
  init = pe.init {
    uniform = { 0, upper },
    doc = upper == 1 and "uniform, 0 to 1 (LieRE, table 7)" or "uniform, 0 to 2 pi (LieRE, appendix C)",
  },
  test_scale = 1.0,
})

return pe.encoding {
  name = "liere",
  doc = "Lie rotational position encoding, LieRE_b (Ostmeier et al., section 4)",
  axes = AXES,
  head_dim = D,
  heads = heads,
  block = pe.dense(b, { prepare = prepare }),
  generators = raw,
  combine = pe.sum,
  phase = 1,
  position = position,
  models = {
    { "LieRE: Lie Rotational Positional Encodings", "arXiv 2406.10322", heads = 12, block = 8 },
    {
      "LieRE_8 (14 x 14 patches, as in training)", heads = 12, block = 8, coordinates = "inclusive", cells = { 14, 14 },
    },
    {
      "LieRE_8 (20 x 20 patches, trained with 14 x 14)", heads = 12, block = 8, coordinates = "inclusive",
      cells = { 20, 20 }, trained = { 14, 14 },
    },
  },
}
