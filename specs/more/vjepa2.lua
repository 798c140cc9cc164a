-- V-JEPA 2's three-dimensional RoPE, as its code has it.
-- "V-JEPA 2: Self-Supervised Video Models Enable Understanding, Prediction and Planning" (Assran et al.), section 2.1,
-- and the authors' code (facebookresearch/vjepa2, rotate_queries_or_keys): the channels are three spans of
-- n = 2 floor(floor(D/3)/2), of frame, row and column, what is left over passes through. In each, with
-- omega_j = base^(-2j/n) and its list written twice in a row, (omega_0 ... omega_(n/2-1), omega_0 ...), channel c has
-- the angle r omega_(c mod n/2), and pairs are neighbours:
--   y_2i = cos(a) x_2i - sin(a) x_2i+1,   y_2i+1 = sin(b) x_2i + cos(b) x_2i+1
-- with a = r omega_(2i mod n/2), b = r omega_(2i+1 mod n/2). What was meant to be one angle are two, so that pairs do
-- not turn, norms are not kept and scores are not relative; models were trained so. angles="paired" has what was meant,
-- a = b = r omega_i.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base")
local angles = pe.option("angles", "tiled", "of a pair's channels: two, as in the code, or one", { "tiled", "paired" })

local axes = { "t", "h", "w" }
local n = D // 3 // 2 * 2
if n == 0 then error("option 'head_dim' is " .. D .. ", at least 6 was expected") end
if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end
local half = n // 2

-- The frequency of a channel of a span.
local function omega(c)
  return base ^ (-(angles == "tiled" and c % half or c // 2) / half)
end

return pe.encoding {
  name = "vjepa2",
  doc = "three-dimensional RoPE of video models, two angles a pair (V-JEPA 2, Assran et al.)",
  axes = axes,
  head_dim = D,
  span = { 0, 3 * n },
  block = pe.linear(2),
  models = {
    { "V-JEPA 2 ViT-L, ViT-g", head_dim = 64 },
    { "V-JEPA 2 ViT-H", head_dim = 80 },
  },
  matrix = function(r, i)
    local own, c = i // half + 1, 2 * (i % half)
    local place = 0
    for a, axis in ipairs(axes) do place = place + (a == own and 1 or 0) * r[axis] end
    local a, b = place * omega(c), place * omega(c + 1)
    return { { pe.cos(a), -pe.sin(a) }, { pe.sin(b), pe.cos(b) } }
  end,
}
