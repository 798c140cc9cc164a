-- STRING in its Cayley form: RoPE-Mixed after a learned orthogonal change of basis of the head.
-- "Learning the RoPEs: Better 2D and 3D Position Encodings with STRING" (Schenck et al.), Cayley-STRING:
--   x -> R(r) P x, P = (I - S)(I + S)^-1 with S learned and skew, R the planes of RoPE-Mixed (eq. 13-14 of Heo et al.).
-- STRING turns by P^-1 R P; the P^-1 in front is the same for all tokens and cancels in scores.
--
-- basis: "channels" multiplies by P in the kernel. "folded" leaves P out, for weights W_q and W_k that pegen_fold_basis
-- has multiplied it into.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with frequencies of their own; 1: all heads share them")
local P = pe.option("axes", 2, "axes of a position: h, w or t, h, w", { 2, 3 })
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })
local basis = pe.option("basis", "channels", "the change of basis: in the kernel, or folded into the weights",
  { "channels", "folded" })

local cayley = basis == "channels" and pe.learned.skew(D, {
  name = "cayley",
  shape = {},
  from = "upper",
  doc = "S of the change of basis (I - S)(I + S)^-1 of all heads; its upper triangle is read",
  source = "Schenck et al., Cayley-STRING",
  init = pe.init { value = 0, doc = "0, at which it is RoPE-Mixed" },
})

local freqs = pe.learned {
  name = "freqs",
  shape = { "axes", "heads", "blocks" },
  doc = "frequency of a pair of channels on an axis",
  units = "radians per unit of position",
  source = "Heo et al., eq. 13-14",
  init = pe.init {
    direction = "axes",
    same = { "blocks" },
    scale = function(_, _, j) return 10 ^ (-4 * j / D) end,
    doc = "RoPE-Mixed's: for each head a random direction phi, for each pair base^(-4j/D) (cos phi, sin phi), base 10",
  },
}

return pe.encoding {
  name = "string_cayley",
  doc = "STRING with a Cayley change of basis (Schenck et al.)",
  axes = P == 2 and { "h", "w" } or { "t", "h", "w" },
  head_dim = D,
  heads = heads,
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = freqs,
  basis = cayley and pe.cayley(cayley) or nil,
}
