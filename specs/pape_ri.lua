-- PaPE-RI: the rotation invariant parabolic position encoding, one curvature a token for the squared distance.
-- "Where to Attend: A Principled Vision-Centric Position Encoding with Parabolas" (PaPE), section 4:
--   score(i, j) = <q_i, k_j> - softplus(W_a x_i) |w_p (r_j - r_i)|^2,
-- of which this kernel is given W_a x_i. It costs P + 1 columns: |r|^2 and the coordinates.
-- The authors' code draws w_p and never trains it (a buffer); here it is an operand, which has a gradient.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with scales of their own; 1: all heads share one")
local P = pe.option("axes", 3, "axes of a position: t; h, w; d, h, w; or t, d, h, w", { 1, 2, 3, 4 })

local bias = require "bias_role"

local axes = require "axes" (P)

local projection = pe.learned {
  name = "projection",
  shape = { "heads" },
  doc = "w_p: scale of the displacement",
  units = "1 per unit of position",
  source = "PaPE, section 4",
  init = pe.init { uniform = { -1 / math.sqrt(P), 1 / math.sqrt(P) }, doc = "uniform, as the authors' code draws it" },
}
local a = pe.input {
  name = "a",
  shape = {},
  doc = "W_a x of the query's token: -softplus of it is the curvature",
  source = "PaPE, eq. 7",
}

return pe.encoding {
  name = "pape_ri",
  doc = "rotation invariant parabolic position encoding (PaPE, section 4)",
  role = bias.role,
  axes = axes,
  head_dim = D,
  value_dim = bias.value_dim,
  heads = heads,
  bias = pe.polynomial {
    degree = 2,
    value = function(delta, _, head)
      local square = 0
      for _, axis in ipairs(axes) do square = square + delta[axis] ^ 2 end
      return -pe.softplus(a()) * projection(head) ^ 2 * square
    end,
  },
  models = {
    { "Where to Attend: A Principled Vision-Centric Position Encoding with Parabolas", "arXiv 2602.01418",
      head_dim = 64 },
  },
}
