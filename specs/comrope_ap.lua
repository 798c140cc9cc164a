-- ComRoPE-AP: blocks of channels turn by exponentials of trainable angle matrices that commute.
-- "ComRoPE: Scalable and Robust Rotary Position Embedding Parameterized by Trainable Commuting Angle Matrices" (Yu et
-- al.):
--   R(x) = exp(sum over axes of x_a A_a), A = F - F^T of a trainable F for each block; block g listens
--   to axis g mod P alone (axial partition).
-- parts/comrope.lua says where positions lie and what the option `basis` does.
local pe = require "pegen"
local comrope = require "comrope"

local function speed(axis, g) return g % comrope.axes + 1 == axis and 1 or 0 end

return pe.encoding(comrope.encoding("comrope_ap", "ComRoPE-AP, axial partition (Yu et al.)", speed))
