-- QuatRo: quaternion rotary embeddings, turns of 3-vectors about learned axes.
-- "Clifford Algebraic Rotary Embeddings" (CARE), section 4: a learned pure quaternion theta_a an axis and block,
--   x' = r_x r_y x r_y^-1 r_x^-1, r_a = exp(theta_a p_a).
-- The paper has no half in the exponent, so that a block turns by 2 |theta_a| p_a; that is the default.
-- The authors' code halves the angle: half_angle = true. The paper has the axes x, y; one axis, and three in the same
-- order (r_x r_y r_z), are read off it (its Future Work); so are more.
-- about = "parallel" and "orthogonal" are RoPE-Mixed and Spherical RoPE in this framework (table 1): theta lies on k
-- for all axes, or on k, j and i, and its length is learned. first = "code" begins as the code does.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with axes of their own; 1: all heads share them")
local P = pe.option("axes", 2, "axes of a position: x, y, z, x4, x5, ...", { 1, 2, 3, 4, 5, 6 })
local half = pe.option("half_angle", false,
  "turn by |theta| p as the authors' code does, not by 2 |theta| p as printed")

local about = pe.option("about", "learned",
  "axes of turns: learned, or fixed as RoPE-Mixed's (parallel), Spherical RoPE's",
  { "learned", "parallel", "orthogonal" })
local first = pe.option("first", "schedule",
  "first values: RoPE's speeds, random axes; or as in the code speeds uniform in [0, 1), on k and j",
  { "schedule", "code" })

local axes, units, number = {}, { "k", "j", "i" }, {}
for a = 1, P do
  axes[a] = ({ "x", "y", "z" })[a] or "x" .. a
  number[axes[a]] = about == "parallel" and 1 or (a - 1) % 3 + 1 -- of its fixed unit
end

local function speed(i) return 100 ^ (-i / (D // 3)) end
local function begin(learned)
  if first == "code" then
    return pe.init {
      uniform = { 0, 1 },
      scale = learned and function(a, _, _, c) return c == 3 - number[a] and 1 or 0 end or 1,
      doc = "uniform in [0, 1), as in the code",
    }
  end
  if learned then
    return pe.init {
      direction = 4,
      scale = function(_, _, i) return speed(i) end,
      doc = "a random direction times base^(-i/blocks), base 100",
    }
  end
  return pe.init { value = function(_, _, i) return speed(i) end, doc = "base^(-i/blocks), base 100" }
end

local learned = about == "learned"
local theta = pe.learned {
  name = "theta",
  shape = learned and { "axes", "heads", "blocks", 3 } or { "axes", "heads", "blocks" },
  doc = learned and "i, j and k of the pure quaternion that a block turns about; its length is the speed"
    or "speed of a block's turn about its fixed axis",
  units = half and "radians per unit of position" or "half radians per unit of position",
  source = "CARE, section 4",
  init = begin(learned),
  test_scale = 1.0,
}

local function turn(a, i, head)
  if not learned then return pe.quaternion(units[number[a]]) * theta(a, head, i) end
  return pe.quaternion "i" * theta(a, head, i, 0) + pe.quaternion "j" * theta(a, head, i, 1)
    + pe.quaternion "k" * theta(a, head, i, 2)
end

return pe.encoding {
  name = "quatro",
  doc = "quaternion rotary embedding (CARE, section 4)",
  axes = axes,
  head_dim = D,
  heads = heads,
  block = pe.vector(3),
  generators = turn,
  combine = pe.product(axes),
  phase = half and 1 or 2,
  models = {
    { "Clifford Algebraic Rotor Embeddings: Maybe embeddings should start to CARE", "arXiv 2511.11665",
      heads = 12 },
  },
}
