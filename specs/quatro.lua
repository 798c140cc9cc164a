-- QuatRo: quaternion rotary embeddings, turns of 3-vectors about learned axes.
-- "Clifford Algebraic Rotary Embeddings" (CARE), section 4: a learned pure quaternion theta_a an axis and block,
--   x' = r_x r_y x r_y^-1 r_x^-1, r_a = exp(theta_a p_a).
-- The paper has no half in the exponent, so that a block turns by 2 |theta_a| p_a; that is the default.
-- The authors' code halves the angle: half_angle = true. The paper has the axes x, y; one axis, and three in the same
-- order (r_x r_y r_z), are read off it (its Future Work).
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with axes of their own; 1: all heads share them")
local P = pe.option("axes", 2, "axes of a position: x, y or x, y, z", { 1, 2, 3 })
local half = pe.option("half_angle", false,
  "turn by |theta| p as the authors' code does, not by 2 |theta| p as printed")

local axes = { "x", "y", "z" }
for a = 3, P + 1, -1 do axes[a] = nil end

local theta = pe.learned {
  name = "theta",
  shape = { "axes", "heads", "blocks", 3 },
  doc = "i, j and k of the pure quaternion that a block turns about; its length is the speed",
  units = half and "radians per unit of position" or "half radians per unit of position",
  source = "CARE, section 4",
  init = pe.init {
    direction = 4,
    scale = function(_, _, i) return 100 ^ (-i / (D // 3)) end,
    doc = "a random direction times base^(-i/blocks), base 100",
  },
  test_scale = 1.0,
}

return pe.encoding {
  name = "quatro",
  doc = "quaternion rotary embedding (CARE, section 4)",
  axes = axes,
  head_dim = D,
  heads = heads,
  block = pe.vector(3),
  generators = function(a, i, head)
    return pe.quaternion "i" * theta(a, head, i, 0) + pe.quaternion "j" * theta(a, head, i, 1)
      + pe.quaternion "k" * theta(a, head, i, 2)
  end,
  combine = pe.product(axes),
  phase = half and 1 or 2,
}
