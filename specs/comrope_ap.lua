-- ComRoPE-AP: blocks of channels turn by exponentials of trainable angle matrices that commute.
-- "ComRoPE: Scalable and Robust Rotary Position Embedding Parameterized by Trainable Commuting Angle Matrices" (Yu et al.):
--   R(x) = exp(sum over axes of x_a A_a), A = F - F^T of a trainable F for each block; block g listens
--   to axis g mod P alone (axial partition).
--
-- Positions are the centres of cells in [0, 1], (p + 1/2) / n (coordinates = "centres", or handed over so). Where the class token shall sit at the
-- centre of the image, skip_tokens=1 and origin=0.5 say so: generators commute, so that scores see differences alone.
--
-- basis: "channels" is R(x) in the channels' own basis. "schur" leaves the output in the basis in which each block's turns are planes:
-- scores are the same and a product is saved. "folded" is planes alone, for weights W_q and W_k that
-- pegen_fold_basis has multiplied that basis into; it fills the operand of frequencies, too.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with generators of their own; 1: all heads share them")
local P = pe.option("axes", 2, "axes of a position: h, w or t, h, w", { 1, 2, 3 })
local b = pe.option("block", 8, "channels of a block, 2 to 64; what is left over passes through")
local basis = pe.option("basis", "channels", "of the output: the channels' own, the generators', or folded into the weights",
  { "channels", "schur", "folded" })
local prepare = pe.option("prepare", "float32",
  "in which rotations exp(M) are formed: within 2^-22 max(1, |M|), or within 2^-22 for any M up to 500", { "float32", "float64" })
local AXES = P == 1 and { "t" } or P == 2 and { "h", "w" } or { "t", "h", "w" }
local coordinates = pe.option("coordinates", "given",
  "positions as given; or from cells p of n: p / (n - 1) in [0, 1], or their centres (p + 1/2) / n", { "given", "inclusive", "centres" })
local cells = pe.option("cells", {}, "cells n on each axis; what coordinates other than given need")
local origin = pe.option("origin", 0.0, "the position that is not turned, where a skipped token is")
if coordinates ~= "given" and #cells ~= P then
  error(string.format("coordinates=%s needs cells: one number for each of the %d axes", coordinates, P))
end
local index = {}
for i, axis in ipairs(AXES) do index[axis] = i end

local function position(axis, r)
  local n = cells[index[axis]]
  if coordinates == "inclusive" then r = r / math.max(n - 1, 1) end
  if coordinates == "centres" then r = (r + 0.5) / n end
  return r - origin
end

-- Axial partition: one axis for each block.
local function speed(axis, g) return g % P + 1 == index[axis] and 1 or 0 end

local encoding = {
  name = "comrope_ap",
  doc = "ComRoPE-AP, axial partition (Yu et al.)",
  axes = AXES,
  head_dim = D,
  heads = heads,
  combine = pe.sum,
  position = position,
}

if basis == "folded" then
  local G, planes = D // b, b // 2 -- of an odd block one channel is not turned
  local frequencies = pe.learned {
    name = "frequencies",
    shape = { "heads", G, planes },
    doc = "eigenvalue of a block's generator in a plane, as pegen_fold_basis gives it",
    units = "radians per unit of position",
    source = "ComRoPE, definition of R; real Schur form of F - F^T",
  }
  encoding.block = pe.plane()
  encoding.span = { 0, 2 * G * planes }
  encoding.layout = function(c, i) return i // planes * b + 2 * (i % planes) + c end
  encoding.generators = pe.turn "e12"
  encoding.phase = function(axis, i, head)
    return speed(axis, i // planes) * frequencies(head, i // planes, i % planes)
  end
else
  encoding.block = pe.dense(b, { prepare = prepare })
  encoding.generators = pe.learned.skew(b, {
    name = "generators",
    shape = { "heads", "blocks" },
    from = "difference",
    doc = "raw generator F of a block: A = F - F^T",
    units = "radians per unit of position",
    source = "ComRoPE, trainable angle matrices",
  })
  encoding.phase = speed
  if basis == "schur" then encoding.basis = pe.schur end
end

return pe.encoding(encoding)
