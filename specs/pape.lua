-- PaPE: parabolic position encoding, attention decays and leans with the displacement by learned parabolas.
-- "Where to Attend: A Principled Vision-Centric Position Encoding with Parabolas" (PaPE), section 4, eq. 6-9:
--   score(i, j) = <q_i, k_j> + <a_i, x^2> + <b_i, x>,  x = W_p (r_j - r_i),
--   a_i = -softplus(W_a x_i), b_i = W_b x_i, of which this kernel is given W_a x_i and W_b x_i.
-- The scale of attention multiplies product and bias alike. The authors widen q and k by 3m + 2 columns (eq. 13-14);
-- as polynomials in the key's position all m parabolas are P (P + 1) / 2 + P columns.
-- without = ... is a row of the paper's ablation (table 2): no <a, x^2>, no <b, x>, a and b trained for each head and
-- alike for all tokens, a without its softplus, or no W_p, so that there is a parabola an axis.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with projections of their own; 1: all heads share one")
local P = pe.option("axes", 2, "axes of a position: t; h, w; d, h, w; or t, d, h, w", { 1, 2, 3, 4 })
local without = pe.option("without", "nothing", "what is left out, as in table 2 of the paper",
  { "nothing", "a", "b", "content", "softplus", "projection" })
local m = without == "projection" and P or pe.option("parabolas", 50, "parabolas, m in the paper")

local bias = require "bias_role"

local axes = require "axes" (P)

local projection = without ~= "projection" and pe.learned {
  name = "projection",
  shape = { "heads", m, "axes" },
  doc = "W_p: what a parabola's argument is of the displacement",
  units = "1 per unit of position",
  source = "PaPE, eq. 6",
  init = pe.init { uniform = { -1 / math.sqrt(P), 1 / math.sqrt(P) }, doc = "uniform Kaiming" }, -- of P inputs
  test_scale = 0.5,
}

-- A coefficient of each parabola, as a function of the parabola and the head: the query's, or one for all tokens.
local function coefficient(name, doc, source)
  if without == name then return function() return 0 end end
  if without ~= "content" then
    local given = pe.input { name = name, shape = { m }, doc = doc .. ", of the query's token", source = source }
    return function(l) return given(l) end
  end
  local own = pe.learned { name = name, shape = { "heads", m }, doc = doc, source = "PaPE, section 5.4", init = 0 }
  return function(l, head) return own(head, l) end
end
local a = coefficient("a", "W_a x: -softplus of it is the parabola's curvature", "PaPE, eq. 7")
local b = coefficient("b", "W_b x: the parabola's slope", "PaPE, eq. 8")
local function scale(axis, l, head)
  if projection then return projection(head, l, axes[axis]) end
  return l == axis - 1 and 1 or 0
end
local function curvature(l, head)
  if without == "a" then return 0 end
  return without == "softplus" and a(l, head) or -pe.softplus(a(l, head))
end

return pe.encoding {
  name = "pape",
  doc = "parabolic position encoding (PaPE, section 4)",
  role = bias.role,
  axes = axes,
  head_dim = D,
  value_dim = bias.value_dim,
  heads = heads,
  bias = pe.polynomial {
    degree = without == "a" and 1 or 2,
    terms = m,
    value = function(delta, l, head)
      local x = 0
      for axis, name in ipairs(axes) do x = x + scale(axis, l, head) * delta[name] end
      return curvature(l, head) * x ^ 2 + b(l, head) * x
    end,
  },
  models = {
    { "Where to Attend: A Principled Vision-Centric Position Encoding with Parabolas", "arXiv 2602.01418",
      heads = 12 },
  },
}
