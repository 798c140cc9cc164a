-- CARE: Clifford algebraic rotary embeddings.
-- "Clifford Algebraic Rotary Embeddings" (CARE), section 5 and appendix A: multivectors of Cl(3,0) in the basis
-- (1, e1, e2, e12, e3, e31, e23, e123), turned by learned rotors, one an axis,
--   x' = R_y R_x x R_x^-1 R_y^-1, R_a = exp(theta_a / 2 B_a), B = u1 e23 + u2 e31 + u3 e12, theta_a = freq_a r_a.
-- Note the sense: e1 -> cos(theta) e1 - sin(theta) e2 under e12.
-- Defaults are the paper's. The authors' code holds e13 = -e31 in that slot, of the channels and of B (basis = "e13"),
-- and composes x after y in one class (order = "code"). The paper has the axes x, y; one axis, and three in the same
-- order (R_z R_y R_x), are read off it (its Future Work); so are more.
-- about = "parallel" and "orthogonal" are RoPE-Mixed and Spherical RoPE in this framework (table 1): planes are fixed
-- and speeds learned. The code has e12 for all axes, or e12 and e31; the third plane here is e23.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with generators of their own; 1: all heads share them")
local P = pe.option("axes", 2, "axes of a position: x, y, z, x4, x5, ...", { 1, 2, 3, 4, 5, 6 })
local grades = pe.option("grades", { 0, 1, 2, 3 }, "grades that a block holds", { 0, 1, 2, 3 })
local basis = pe.option("basis", "e31", "the blade in the slot of e1 and e3: e31 as in the paper, e13 as in the code",
  { "e31", "e13" })
local order = pe.option("order", "paper", "paper: R_y R_x, x acts first; code: R_x R_y", { "paper", "code" })
local about = pe.option("about", "learned", "planes: learned, or fixed as RoPE-Mixed's (parallel), Spherical RoPE's",
  { "learned", "parallel", "orthogonal" })
local speeds = pe.option("speeds", "schedule", "first values of speeds: RoPE's, or uniform in [0, 1) as in the code",
  { "schedule", "uniform" })

local axes, composed = {}, {} -- the leftmost rotor acts last
for a = 1, P do
  axes[a] = ({ "x", "y", "z" })[a] or "x" .. a
  table.insert(composed, order == "paper" and 1 or a, axes[a])
end

-- Blades of the wanted grades, in the paper's order.
local blades = {}
for _, blade in ipairs { "1", "e1", "e2", "e12", "e3", basis, "e23", "e123" } do
  local grade = blade == "1" and 0 or #blade - 1
  for _, wanted in ipairs(grades) do
    if wanted == grade then blades[#blades + 1] = blade end
  end
end
local blocks = D // #blades

local axis = about == "learned" and pe.learned {
  name = "axis",
  shape = { "axes", "heads", "blocks", 3 },
  doc = "unit vector (u1, u2, u3) of the bivector u1 e23 + u2 e31 + u3 e12 that a block turns in",
  units = "1",
  source = "CARE, appendix A",
  init = pe.init { direction = 4, doc = "uniform on the unit sphere" },
  test_scale = 1.0,
}

local freq = pe.learned {
  name = "freq",
  shape = { "axes", "heads", "blocks" },
  doc = "speed of the turn",
  units = "radians per unit of position",
  source = "CARE, appendix A",
  init = speeds == "uniform" and pe.init { uniform = { 0, 1 }, doc = "uniform in [0, 1), as in the code" }
    or pe.init {
      value = function(_, _, i) return 10000 ^ (-i / blocks) end,
      doc = "base^(-i/blocks), base 10000, as RoPE's",
    },
  test_scale = 1.0,
}

local planes = {} -- of each axis, where they are fixed
for a, name in ipairs(axes) do
  planes[name] = about == "parallel" and "e12" or ({ "e12", basis, "e23" })[(a - 1) % 3 + 1]
end

local function plane(a, i, head)
  if not axis then return pe.bivector { [planes[a]] = 1 } end
  return pe.bivector { e23 = axis(a, head, i, 0), [basis] = axis(a, head, i, 1), e12 = axis(a, head, i, 2) }
end

return pe.encoding {
  name = "care",
  doc = "Clifford algebraic rotary embedding in Cl(3,0) (CARE, appendix A)",
  axes = axes,
  head_dim = D,
  heads = heads,
  block = pe.multivector { algebra = { 3, 0, 0 }, blades = blades },
  generators = plane,
  combine = pe.product(composed),
  phase = freq,
  models = {
    { "Clifford Algebraic Rotor Embeddings: Maybe embeddings should start to CARE", "arXiv 2511.11665",
      heads = 12 },
  },
}
