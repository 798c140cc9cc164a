-- PaPE: parabolic position encoding, attention decays and leans with the displacement by learned parabolas.
-- "Where to Attend: A Principled Vision-Centric Position Encoding with Parabolas" (PaPE), section 4, eq. 6-9:
--   score(i, j) = <q_i, k_j> + <a_i, x^2> + <b_i, x>,  x = W_p (r_j - r_i),
--   a_i = -softplus(W_a x_i), b_i = W_b x_i, of which this kernel is given W_a x_i and W_b x_i.
-- The scale of attention multiplies product and bias alike. The authors widen q and k by 3m + 2 columns (eq. 13-14);
-- as polynomials in the key's position all m parabolas are P (P + 1) / 2 + P columns.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with projections of their own; 1: all heads share one")
local P = pe.option("axes", 2, "axes of a position: h, w or d, h, w", { 1, 2, 3 })
local m = pe.option("parabolas", 50, "parabolas, m in the paper")

local bias = require "bias_role"

local axes = ({ { "t" }, { "h", "w" }, { "d", "h", "w" } })[P]

local projection = pe.learned {
  name = "projection",
  shape = { "heads", m, "axes" },
  doc = "W_p: what a parabola's argument is of the displacement",
  units = "1 per unit of position",
  source = "PaPE, eq. 6",
  init = pe.init { uniform = { -1 / math.sqrt(P), 1 / math.sqrt(P) }, doc = "uniform Kaiming" }, -- of P inputs
  test_scale = 0.5,
}
local a = pe.input {
  name = "a",
  shape = { m },
  doc = "W_a x of the query's token: -softplus of it is the parabola's curvature",
  source = "PaPE, eq. 7",
}
local b = pe.input {
  name = "b",
  shape = { m },
  doc = "W_b x of the query's token: the parabola's slope",
  source = "PaPE, eq. 8",
}

return pe.encoding {
  name = "pape",
  doc = "parabolic position encoding (PaPE, section 4)",
  role = bias.role,
  axes = axes,
  head_dim = D,
  value_dim = bias.value_dim,
  heads = heads,
  bias = pe.polynomial {
    degree = 2,
    terms = m,
    value = function(delta, l, head)
      local x = 0
      for _, axis in ipairs(axes) do x = x + projection(head, l, axis) * delta[axis] end
      return -pe.softplus(a(l)) * x ^ 2 + b(l) * x
    end,
  },
}
