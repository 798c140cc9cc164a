-- Multiplicative GRAPE: a position acts as the exponential of one skew generator, G(n) = exp(n omega L).
-- "Group Representational Position Encoding" (Zhang et al.), abstract and section on its rank-2 generators:
--   L(a, b) = a b^T - b a^T, a rotation in the plane of a and b; of several, sums of them that commute or not.
-- kind, what the generator is:
--   planes    commuting: planes of coordinates, whose frequencies are learned, as the authors' code has them
--             (model-architectures/GRAPE, grape-m-nonctx: split layout, y1 = x1 cos + x2 sin). `freq` is the code's
--             exp(log_freq).
--   mixture   a sum of rank-2 generators: the operand `generators` is F = sum of omega_j a_j b_j^T, made by the caller,
--             and the generator F - F^T. Blocks of up to 64 channels.
-- Additive GRAPE's exact cases are alibi.lua and, with gates of tokens, FoX.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with generators of their own; 1: all heads share them")
local kind = pe.option("kind", "planes", "planes of coordinates with learned frequencies, or sums of rank-2 generators",
  { "planes", "mixture" })
local base = pe.option("base", 10000.0, "frequency base of the first values")

local fields = {
  name = "grape_m",
  doc = "exponentials of learned skew generators (multiplicative GRAPE, Zhang et al.)",
  axes = { "t" },
  head_dim = D,
  heads = heads,
}
if kind == "planes" then
  local freq = pe.learned {
    name = "freq", shape = { "heads", "blocks" }, doc = "frequency of a plane",
    units = "radians per unit of position", source = "Zhang et al., their code: exp(log_freq)",
    init = pe.init { value = function(_, i) return base ^ (-2 * i / D) end, doc = "RoPE's" },
    test_scale = 2.0,
  }
  fields.block, fields.layout = pe.plane(), "split"
  fields.generators = pe.turn "e12"
  fields.phase = function(_, i, head) return -freq(head, i) end
else
  local b = pe.option("block", math.min(D, 64), "channels of a block, 2 to 64; what is left over passes through")
  fields.block = pe.dense(b)
  fields.generators = pe.learned.skew(b, {
    name = "generators", shape = { "heads", "blocks" }, from = "difference",
    doc = "F = sum of omega_j a_j b_j^T: the generator is F - F^T", units = "radians per unit of position",
    source = "Zhang et al., L(a, b) = a b^T - b a^T",
    init = pe.init {
      value = function(_, g, row, column)
        return row == column + 1 and column % 2 == 0 and base ^ (-(g * b + column) / D) or 0
      end,
      doc = "RoPE's planes",
    },
  })
  fields.phase = 1
end
return pe.encoding(fields)
