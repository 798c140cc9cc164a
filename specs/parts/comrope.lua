-- What comrope_ap.lua and comrope_ld.lua share: blocks that turn by one trainable generator each, A = F - F^T, whatever
-- the axis; and the bases that this allows.
--
-- Positions are the centres of cells in [0, 1], (p + 1/2) / n (coordinates = "centres", or handed over so). Where the
-- class token shall sit at the centre of the image, skip_tokens=1 and origin=0.5 say so: generators commute, so that
-- scores see differences alone.
--
-- basis: "channels" is R(x) in the channels' own basis. "schur" leaves the output in the basis in which each block's
-- turns are planes: scores are the same and a product is saved. "folded" is planes alone, for weights W_q and W_k that
-- pegen_fold_basis has multiplied that basis into; it fills the operand of frequencies, too.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with generators of their own; 1: all heads share them")
local P = pe.option("axes", 2, "axes of a position: h, w or t, h, w", { 1, 2, 3 })
local b = pe.option("block", 8, "channels of a block, 2 to 64; what is left over passes through")
local basis = pe.option("basis", "channels",
  "of the output: the channels' own, the generators', or folded into the weights",
  { "channels", "schur", "folded" })
local prepare = pe.option("prepare", "float32",
  "in which rotations exp(M) are formed: within 2^-22 max(1, |M|), or within 2^-22 for any M up to 500", { "float32",
    "float64" })
local AXES = P == 1 and { "t" } or P == 2 and { "h", "w" } or { "t", "h", "w" }
local position = pe.coordinates(AXES)

-- First values: those with which it is RoPE ("vanilla RoPE", appendix D.1), block g's planes turning with axis g mod P.
local function frequency(g, plane) return 10000 ^ (-2 * P * (g // P * (b // 2) + plane) / D) end

-- Blocks of planes, for weights that the generators' basis is folded into.
local function planes(speed)
  local G, n = D // b, b // 2 -- of an odd block one channel is not turned
  local frequencies = pe.learned {
    name = "frequencies",
    shape = { "heads", G, n },
    doc = "eigenvalue of a block's generator in a plane, as pegen_fold_basis gives it",
    units = "radians per unit of position",
    source = "ComRoPE, definition of R; real Schur form of F - F^T",
    init = pe.init {
      value = function(_, g, plane) return frequency(g, plane) end,
      doc = "RoPE's (ComRoPE, appendix D.1)",
    },
  }
  return {
    block = pe.plane(),
    span = { 0, 2 * G * n },
    layout = function(c, i) return i // n * b + 2 * (i % n) + c end,
    generators = pe.turn "e12",
    phase = function(axis, i, head) return speed(axis, i // n, head) * frequencies(head, i // n, i % n) end,
  }
end

local function matrices(speed)
  return {
    block = pe.dense(b, { prepare = prepare }),
    generators = pe.learned.skew(b, {
      name = "generators",
      shape = { "heads", "blocks" },
      from = "difference",
      doc = "raw generator F of a block: A = F - F^T",
      units = "radians per unit of position",
      source = "ComRoPE, trainable angle matrices",
      init = pe.init {
        value = function(_, g, row, column)
          return row == column + 1 and column % 2 == 0 and frequency(g, column // 2) or 0
        end,
        doc = "RoPE's planes (ComRoPE, appendix D.1): F = frequency at (2c + 1, 2c), else 0",
      },
    }),
    phase = speed,
    basis = basis == "schur" and pe.schur or nil,
  }
end

-- The encoding in which block g of axis number a (from 1) turns by speed(a, g) times its generator, or, of_heads, by
-- speed(a, g, head); blocks: how many there are.
local index = {}
for i, axis in ipairs(AXES) do index[axis] = i end
return {
  axes = P,
  index = index, -- of axes, from 1
  blocks = D // b,
  encoding = function(name, doc, speed, of_heads)
    local function shared(axis, g) return speed(index[axis], g) end
    local function own(axis, g, head) return speed(index[axis], g, head) end
    local of_axis = of_heads and own or shared
    local fields = basis == "folded" and planes(of_axis) or matrices(of_axis)
    fields.name, fields.doc, fields.axes = name, doc, AXES
    fields.models = { { "ComRoPE: Scalable and Robust Rotary Position Embedding Parameterized by Trainable Commuting "
      .. "Angle Matrices", "arXiv 2506.03737", heads = 12 } }
    fields.head_dim, fields.heads, fields.combine, fields.position = D, heads, pe.sum, position
    return fields
  end,
}
