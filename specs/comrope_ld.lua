-- ComRoPE-LD: blocks of channels turn by exponentials of trainable angle matrices that commute.
-- "ComRoPE: Scalable and Robust Rotary Position Embedding Parameterized by Trainable Commuting Angle Matrices" (Yu et
-- al.):
--   R(x) = exp(sum over axes of x_a A_a), A = F - F^T of a trainable F for each block; A_a is a
--   trainable multiple of the block's one A (linearly dependent).
-- parts/comrope.lua says where positions lie and what the option `basis` does.
local pe = require "pegen"
local comrope = require "comrope"

local multiplier = pe.learned {
  name = "multiplier",
  shape = { "axes", comrope.blocks },
  doc = "factor of a block's generator on an axis",
  source = "ComRoPE-LD",
  init = pe.init {
    value = function(axis, g) return g % comrope.axes + 1 == comrope.index[axis] and 1 or 0 end,
    doc = "1 on axis number g mod P, else 0: with the generators' it is RoPE",
  },
}

local function speed(axis, g) return multiplier(axis - 1, g) end

return pe.encoding(comrope.encoding("comrope_ld", "ComRoPE-LD, linearly dependent (Yu et al.)", speed))
