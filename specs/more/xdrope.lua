-- XD-RoPE of Hunyuan's models of text and images, as its code has it: two angles a pair.
-- transformers, modeling_hunyuan_vl.py (HunYuanVLRotaryEmbedding): the list of the pairs' frequencies is written twice
-- in a row over the D channels, and then cut among the axes, of which axis a has the next 2 sections[a] channels:
--   y_i = cos(a) x_i - sin(a) x_(i+D/2),   y_(i+D/2) = cos(b) x_(i+D/2) + sin(b) x_i
-- with a = p omega_i of the axis that channel i has, b = q omega_i of the axis of channel i + D/2. So pairs turn where
-- all axes are equal, as in text, and of images norms are not kept and scores are not relative; models were trained so.
-- An axis is the position in the text, the column, the row, the number of the image; without the first there are three.
-- omega_i = base^(-2i/D), of a base that is alpha^(D/(D-2)) times the trained one (NTK).
local pe = require "pegen"

local D = pe.option("head_dim", 128, "channels per head")
local each = D // 8
local sections = pe.option("sections", { D // 2 - 3 * each, each, each, each },
  "pairs of each axis, of 3 or 4 (mrope_section); alike")
local base = pe.option("base", 10000.0, "frequency base")
local alpha = pe.option("alpha", 1.0, "NTK factor of the base")

if D < 4 or D % 2 == 1 then error("option 'head_dim' is " .. D .. ", an even number of at least 4 was expected") end
if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end
if alpha < 1 then error("option 'alpha' is " .. alpha .. ", a number of at least 1 was expected") end
if #sections ~= 3 and #sections ~= 4 then
  error("option 'sections' has " .. #sections .. " axes, 3 or 4 were expected")
end
local half, total = D // 2, 0
for _, pairs_of_axis in ipairs(sections) do
  if pairs_of_axis < 0 then error "option 'sections' has a negative number of pairs" end
  total = total + pairs_of_axis
end
if total ~= half then error("option 'sections' names " .. total .. " pairs, " .. half .. " were expected") end

local axes = #sections == 4 and { "t", "w", "h", "image" } or { "w", "h", "image" }

-- Where the axis of channel c is: its coordinate.
local function place_of(r, c)
  local place, first = 0, 0
  for a, axis in ipairs(axes) do
    local last = first + 2 * sections[a]
    place = place + (first <= c and c < last and 1 or 0) * r[axis]
    first = last
  end
  return place
end

local function omega(i) return (base * alpha ^ (D / (D - 2))) ^ (-2 * i / D) end

return pe.encoding {
  name = "xdrope",
  doc = "rotary position embedding of several axes, two angles a pair (XD-RoPE, Hunyuan)",
  axes = axes,
  head_dim = D,
  block = pe.linear(2),
  layout = "split",
  models = {
    { "HunyuanOCR (with alpha of its config)", head_dim = 128, sections = { 16, 16, 16, 16 } },
  },
  matrix = function(r, i)
    local a, b = place_of(r, i) * omega(i), place_of(r, i + half) * omega(i)
    return { { pe.cos(a), -pe.sin(a) }, { pe.sin(b), pe.cos(b) } }
  end,
}
