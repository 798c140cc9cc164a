-- Bivectors of four vectors with operands for coefficients: at random ones, and (operands at 0) where the squares of
-- their parts meet: isoclinic turns of Cl(4,0) and Cl(0,4), null rotations of Cl(3,1), Cl(1,3) and Cl(2,2), slides of
-- Cl(3,0,1), nothing at all.
local pe = require "pegen"
local kinds = { "turns", "minus", "boosts", "mostly_minus", "mixed", "screws" }
local algebra = pe.option("algebra", "turns", "signature", kinds)
local around = pe.option("around", true, "operands are added to a bivector whose parts' squares are equal or 0")
local held = pe.option("held", false, "coefficients are inputs")
local combine = pe.option("combine", "sum", "how axes are combined", { "sum", "product" })

local p, q, r = table.unpack(({
  turns = { 4, 0, 0 }, minus = { 0, 4, 0 }, boosts = { 3, 1, 0 }, mostly_minus = { 1, 3, 0 }, mixed = { 2, 2, 0 },
  screws = { 3, 0, 1 },
})[algebra])
local meeting = ({
  turns = pe.bivector { e12 = 0.6, e13 = 0.8, e34 = 0.6, e24 = -0.8 },
  minus = pe.bivector { e12 = 0.6, e13 = 0.8, e34 = -0.6, e24 = 0.8 },
  boosts = pe.bivector { e12 = 0.5, e24 = 0.5 },
  mostly_minus = pe.bivector { e12 = 0.5, e24 = 0.5 },
  mixed = pe.bivector { e12 = 0.5, e24 = 0.5 },
  screws = pe.bivector { e14 = 0.3, e24 = 0.4 },
})[algebra]
local g = not held and pe.learned { name = "g", shape = { "axes", "blocks", 6 }, doc = "of planes", test_scale = 0.4 }
local u = held and pe.input { name = "u", shape = { 36 }, doc = "coefficients of a token's own", test_scale = 0.4 }
local function coefficient(a, i, k)
  if held then return u((a == "x" and 0 or 18) + 6 * i + k) end
  return g(a, i, k)
end

return pe.encoding {
  name = "bivectors",
  axes = { "x", "y" },
  head_dim = 12,
  block = pe.multivector { algebra = { p, q, r }, grades = { 1 } },
  generators = function(a, i)
    local c = function(k) return coefficient(a, i, k) end
    local own = pe.bivector { e12 = c(0), e13 = c(1), e14 = c(2), e23 = c(3), e24 = c(4), e34 = c(5) }
    return around and a == "x" and meeting + own or own
  end,
  phase = function(_, i) return 0.8 ^ i end,
  combine = combine == "sum" and pe.sum or pe.product { "y", "x" },
}
