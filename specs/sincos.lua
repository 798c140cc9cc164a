-- sincos: absolute positions as sines and cosines that are added to the embedding, in any number of dimensions.
-- "Attention is all you need" (Vaswani et al.), section 3.5, and for images Wang & Liu, as in PaPE, section 5.1
-- (nD-sincos). Each axis has channels/P channels, the last one what is left over; within an axis of n channels the
-- sines of
--   r base^(-2j/n), j = 0, 1, ... come first (one more than cosines where n is odd), then the cosines of the same.
-- arrangement=functions has all axes' sines first, then all axes' cosines, as timm's build_sincos2d_pos_embed without
-- interleave_sin_cos; order=1,0 is MAE's, whose first channels are the columns'.
-- The embedding is [B,1,N,C] (or per head [B,H,N,D]): the kernel takes it as q, or as q and k.
local pe = require "pegen"

local C = pe.option("channels", 64, "channels of the embedding, of all axes together")
local P = pe.option("axes", 2, "axes of a position: t; h, w; or d, h, w", { 1, 2, 3 })
local base = pe.option("base", 10000.0, "frequency base")

local arrangement = pe.option("arrangement", "axes", "axis by axis, sines then cosines; or all sines, then all cosines",
  { "axes", "functions" })

local axes = ({ { "t" }, { "h", "w" }, { "d", "h", "w" } })[P]

local order = require "order" (axes)
if arrangement == "functions" and C % (2 * P) ~= 0 then
  error("arrangement=functions needs sines and cosines of all " .. P .. " axes; " .. C ..
    " channels are no multiple of " .. 2 * P)
end

-- Axis, its number of channels, and the index within it.
local function place(channel)
  local each = C // P
  if arrangement == "functions" then
    local half, is_cosine = each // 2, channel // (C // 2)
    local rest = channel - is_cosine * (C // 2)
    return order[rest // half + 1], each, is_cosine * half + rest % half
  end
  local axis = math.min(channel // each, P - 1)
  return order[axis + 1], axis == P - 1 and C - axis * each or each, channel - axis * each
end

return pe.encoding {
  name = "sincos",
  doc = "sines and cosines added to the embedding (Vaswani et al., section 3.5, in n dimensions)",
  axes = axes,
  head_dim = C,
  models = {
    { "MAE", channels = 768, order = { 1, 0 } },
    { "timm's build_sincos2d_pos_embed", channels = 768, arrangement = "functions" },
  },
  add = function(r, channel)
    local own, n, i = place(channel)
    local sines = (n + 1) // 2
    local j, quarter = i < sines and i or i - sines, i < sines and 0 or pe.pi / 2
    local angle = quarter
    for a, axis in ipairs(axes) do angle = angle + (a == own and base ^ (-2 * j / n) or 0) * r[axis] end
    return pe.sin(angle)
  end,
}
