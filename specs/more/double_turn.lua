-- Bivectors that are not simple: a turn about (1, 1, 1) by theta r of the first three channels of a block, and at once
-- in the plane of (1, 1, 1) and the fourth by pitch theta r, which with the square of e4
--   +1, "turn"   is a turn: a double turn of Cl(4,0), isoclinic where pitch is 1 or -1 (all vectors by one angle),
--   -1, "boost"  is a boost: a Lorentz transformation of Cl(3,1) along the axis of its turn; keep pitch theta r small,
--    0, "slide"  is a shear: a screw of Cl(3,0,1), whose fourth channel takes pitch theta r times what lies along the
--                axis.
-- The two parts commute, and their product is exp of the sum, in closed form (M. Roelfs and S. De Keninck, "Graded
-- symmetry groups: plane and simple"). theta_i = scale base^(-4i/D).
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local with = pe.option("with", "turn", "what goes with the turn about (1, 1, 1)", { "turn", "boost", "slide" })
local pitch = pe.option("pitch", 1.0, "of that, per radian of the turn")
local base = pe.option("base", 10000.0, "frequency base")
local scale = pe.option("scale", 1.0, "radians per unit of position of the first block")
local layout = pe.option("layout", "interleaved", "neighbours, or channels n apart", { "interleaved", "split" })

local algebra = { turn = { 4, 0, 0 }, boost = { 3, 1, 0 }, slide = { 3, 0, 1 } }
local c = 1 / 3 ^ 0.5

return pe.encoding {
  name = "double_turn",
  doc = "turns that are not simple: isoclinic in Cl(4,0), with boosts in Cl(3,1), screws of Cl(3,0,1)",
  axes = { "t" },
  head_dim = D,
  block = pe.multivector { algebra = algebra[with], grades = { 1 } },
  layout = layout,
  generators = pe.turn "e12" * c + pe.turn "e23" * c + pe.turn "e31" * c
    + (pe.turn "e14" + pe.turn "e24" + pe.turn "e34") * (pitch * c),
  phase = function(_, i) return scale * base ^ (-4 * i / D) end,
}
