-- sincos: absolute positions as sines and cosines that are added to the embedding, in any number of dimensions.
-- "Attention is all you need" (Vaswani et al.), section 3.5, and for images Wang & Liu, as in PaPE, section 5.1
-- (nD-sincos). Each axis has channels/P channels, the last one what is left over; within an axis of n channels the
-- sines of
--   r base^(-2j/n), j = 0, 1, ... come first (one more than cosines where n is odd), then the cosines of the same.
-- The embedding is [B,1,N,C] (or per head [B,H,N,D]): the kernel takes it as q, or as q and k.
local pe = require "pegen"

local C = pe.option("channels", 64, "channels of the embedding, of all axes together")
local P = pe.option("axes", 2, "axes of a position: t; h, w; or d, h, w", { 1, 2, 3 })
local base = pe.option("base", 10000.0, "frequency base")

local axes = ({ { "t" }, { "h", "w" }, { "d", "h", "w" } })[P]

-- Axis, its number of channels, and the index within it.
local function place(channel)
  local each = C // P
  local axis = math.min(channel // each, P - 1)
  return axis + 1, axis == P - 1 and C - axis * each or each, channel - axis * each
end

return pe.encoding {
  name = "sincos",
  doc = "sines and cosines added to the embedding (Vaswani et al., section 3.5, in n dimensions)",
  axes = axes,
  head_dim = C,
  add = function(r, channel)
    local own, n, i = place(channel)
    local sines = (n + 1) // 2
    local j, quarter = i < sines and i or i - sines, i < sines and 0 or pe.pi / 2
    local angle = quarter
    for a, axis in ipairs(axes) do angle = angle + (a == own and base ^ (-2 * j / n) or 0) * r[axis] end
    return pe.sin(angle)
  end,
}
