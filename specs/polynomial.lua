-- A bias of any degree: each token says how much it wants of every monomial of the displacement.
-- "Where to Attend: A Principled Vision-Centric Position Encoding with Parabolas" (PaPE), appendix C, names
-- polynomials as what parabolas could become; with a projection to one coordinate a term:
--   score(i, j) = <q_i, k_j> + sum over l of sum over n of c_i[n, l] x_l^n,  x_l = W_l (r_j - r_i), 1 <= n <= degree.
-- of = "both" multiplies what power n adds by h_j[n] of the key's token: coefficients h_q(x_i) h_k(x_j).
-- Even degrees must be negative for attention to decay: leading = "softplus" takes -softplus of their coefficients.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with projections of their own; 1: all heads share one")
local P = pe.option("axes", 2, "axes of a position: t; h, w; d, h, w; or t, d, h, w", { 1, 2, 3, 4 })
local degree = pe.option("degree", 3, "highest power of the displacement", { 1, 2, 3, 4, 5 })
local m = pe.option("terms", 8, "projections that polynomials are taken of")
local leading = pe.option("leading", "free", "what even powers have as coefficients", { "free", "softplus" })

local bias = require "bias_role"
local of = pe.option("of", "query", "tokens that coefficients are of: the query's, or the query's and the key's",
  { "query", "both", needs = { role = "pairwise" } })

local axes = require "axes" (P)

local projection = pe.learned {
  name = "projection",
  shape = { "heads", m, "axes" },
  doc = "what a term's argument is of the displacement",
  units = "1 per unit of position",
  source = "PaPE, eq. 6",
  init = pe.init { uniform = { -1 / math.sqrt(P), 1 / math.sqrt(P) }, doc = "uniform Kaiming" }, -- of P inputs
  test_scale = 0.2,
}
local coefficients = {}
for n = 1, degree do
  coefficients[n] = pe.input {
    name = "c" .. n,
    shape = { m },
    doc = "coefficient of power " .. n .. " in each term, of the query's token",
    source = "PaPE, appendix C",
  }
end

local of_key = {}
for n = 1, of == "both" and degree or 0 do
  of_key[n] = pe.input {
    name = "h" .. n,
    shape = {},
    of = "key",
    doc = "factor of power " .. n .. ", of the key's token",
    source = "PaPE, appendix C",
  }
end

return pe.encoding {
  name = "polynomial",
  doc = "a polynomial bias of each token's own (PaPE, appendix C)",
  role = bias.role,
  axes = axes,
  head_dim = D,
  value_dim = bias.value_dim,
  heads = heads,
  bias = pe.polynomial {
    degree = degree,
    terms = m,
    value = function(delta, l, head)
      local x, sum = 0, 0
      for _, axis in ipairs(axes) do x = x + projection(head, l, axis) * delta[axis] end
      for n = 1, degree do
        local c = coefficients[n](l)
        if n % 2 == 0 and leading == "softplus" then c = -pe.softplus(c) end
        if of_key[n] then c = c * of_key[n]() end
        sum = sum + c * x ^ n
      end
      return sum
    end,
  },
  models = {
    { "Where to Attend: A Principled Vision-Centric Position Encoding with Parabolas", "arXiv 2602.01418",
      head_dim = 64 },
  },
}
