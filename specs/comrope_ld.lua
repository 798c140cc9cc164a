-- ComRoPE-LD: blocks of channels turn by exponentials of trainable angle matrices that commute.
-- "ComRoPE: Scalable and Robust Rotary Position Embedding Parameterized by Trainable Commuting Angle Matrices" (Yu et
-- al.):
--   R(x) = exp(sum over axes of x_a A_a), A = F - F^T of a trainable F for each block; A_a is a
--   trainable multiple of the block's one A (linearly dependent).
-- Those multiples are the same in all heads in the authors' code, and each head's own in appendix E.2.4 of the paper
-- (multiplier = "heads").
-- parts/comrope.lua says where positions lie and what the option `basis` does.
local pe = require "pegen"
local comrope = require "comrope"

local of_heads = pe.option("multiplier", "shared", "factors of generators: those of all heads, or each head's own",
  { "shared", "heads", needs = { heads = true } }) == "heads"

local multiplier = pe.learned {
  name = "multiplier",
  shape = of_heads and { "axes", "heads", comrope.blocks } or { "axes", comrope.blocks },
  doc = "factor of a block's generator on an axis",
  source = "ComRoPE-LD",
  init = pe.init {
    value = function(axis, head, g)
      if not of_heads then g = head end
      return g % comrope.axes + 1 == comrope.index[axis] and 1 or 0
    end,
    doc = "1 on axis number g mod P, else 0: with the generators' it is RoPE",
  },
}

local function speed(axis, g) return multiplier(axis - 1, g) end
local function speed_of_head(axis, g, head) return multiplier(axis - 1, head, g) end

return pe.encoding(comrope.encoding("comrope_ld", "ComRoPE-LD, linearly dependent (Yu et al.)",
  of_heads and speed_of_head or speed, of_heads))
