-- Bivectors of four and five vectors with operands for coefficients: at random ones, and (operands at 0) where the
-- squares of their parts meet: isoclinic turns of Cl(4,0), Cl(0,4) and Cl(5,0), null rotations of Cl(3,1), Cl(1,3) and
-- Cl(2,2), slides of Cl(3,0,1), nothing at all; of Cl(4,1) and Cl(3,1,1) a null rotation and a turn, of Cl(3,2) squares
-- that are conjugate. Five vectors are mixed by all ten planes.
local pe = require "pegen"
local kinds = {
  "turns", "minus", "boosts", "mostly_minus", "mixed", "screws", "five", "conformal", "conjugate", "motors",
}
local algebra = pe.option("algebra", "turns", "signature", kinds)
local around = pe.option("around", true, "operands are added to a bivector whose parts' squares are equal or 0")
local held = pe.option("held", false, "coefficients are inputs")
local combine = pe.option("combine", "sum", "how axes are combined", { "sum", "product" })
local apart = pe.option("apart", false, "y turns among e1 to e4 alone, by a bivector that is not simple either")

local p, q, r = table.unpack(({
  turns = { 4, 0, 0 }, minus = { 0, 4, 0 }, boosts = { 3, 1, 0 }, mostly_minus = { 1, 3, 0 }, mixed = { 2, 2, 0 },
  screws = { 3, 0, 1 }, five = { 5, 0, 0 }, conformal = { 4, 1, 0 }, conjugate = { 3, 2, 0 }, motors = { 3, 1, 1 },
})[algebra])
local n = p + q + r
local meeting = ({
  turns = pe.bivector { e12 = 0.6, e13 = 0.8, e34 = 0.6, e24 = -0.8 },
  minus = pe.bivector { e12 = 0.6, e13 = 0.8, e34 = -0.6, e24 = 0.8 },
  boosts = pe.bivector { e12 = 0.5, e24 = 0.5 },
  mostly_minus = pe.bivector { e12 = 0.5, e24 = 0.5 },
  mixed = pe.bivector { e12 = 0.5, e24 = 0.5 },
  screws = pe.bivector { e14 = 0.3, e24 = 0.4 },
  five = pe.bivector { e12 = 0.6, e14 = -0.8, e23 = 0.48, e25 = 0.64, e34 = 0.36, e45 = -0.48 },
  conformal = pe.bivector { e12 = 1, e34 = 0.5, e35 = 0.5 },
  conjugate = pe.bivector { e13 = 0.5, e14 = 0.35, e24 = 0.35, e23 = -0.5 },
  motors = pe.bivector { e12 = 1, e14 = 0.5, e24 = 0.3, e35 = 0.5 },
})[algebra]
local planes = {}
for i = 1, n do
  for j = i + 1, n do
    planes[#planes + 1] = "e" .. i .. j
  end
end
local g = not held
  and pe.learned { name = "g", shape = { "axes", "blocks", #planes }, doc = "of planes", test_scale = 0.4 }
local u = held
  and pe.input { name = "u", shape = { 6 * #planes }, doc = "coefficients of a token's own", test_scale = 0.4 }
local function coefficient(a, i, k)
  if held then return u(((a == "x" and 0 or 3) + i) * #planes + k) end
  return g(a, i, k)
end

return pe.encoding {
  name = "bivectors",
  axes = { "x", "y" },
  head_dim = 3 * n,
  block = pe.multivector { algebra = { p, q, r }, grades = { 1 } },
  generators = function(a, i)
    local own = {}
    for k, plane in ipairs(planes) do
      if not (apart and a == "y" and plane:find "5") then own[plane] = coefficient(a, i, k - 1) end
    end
    own = pe.bivector(own)
    return around and a == "x" and meeting + own or own
  end,
  phase = function(_, i) return 0.8 ^ i end,
  combine = combine == "sum" and pe.sum or pe.product { "y", "x" },
}
