-- Eight general rotors of conformal space multiplied: 298 s and 2.4 GB when it was compiled.
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "axes", "blocks", 10 }, doc = "coefficients" }
local planes = { "e12", "e13", "e14", "e15", "e23", "e24", "e25", "e34", "e35", "e45" }
return pe.encoding {
  name = "bomb", axes = { "a", "b", "c", "d", "e", "f", "g", "h" }, head_dim = pe.option("head_dim", 4096, "channels"),
  block = pe.multivector { algebra = { 4, 1, 0 }, grades = { 0, 1, 2, 3, 4, 5 } },
  combine = pe.product { "a", "b", "c", "d", "e", "f", "g", "h" },
  generators = function(a, i)
    local sum = {}
    for k, plane in ipairs(planes) do sum[plane] = w(a, i, k - 1) end
    return pe.bivector(sum)
  end,
  phase = function(_, i) return 2 ^ -i end,
}
