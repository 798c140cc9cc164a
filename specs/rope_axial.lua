-- Axial RoPE: every pair of channels turns with one axis of a grid.
-- The arrangement says which pair listens to which axis, and at what frequency (P axes, D channels):
--   sequential   the pairs of axis 0 first, then axis 1, ...; base^(-2Pj/D), j counted anew on each axis.
--                "Rotary Position Embedding for Vision Transformer" (Heo et al.), eq. 9-10; base 100. The default.
--   alternating  pair i turns with axis i mod P; base^(-2P floor(i/P)/D).
--                "VisionLLaMA: A Unified LLaMA Backbone for Vision Tasks" (Chu et al.), section 3.2; base 10000.
--   sections     M-RoPE of "Qwen2-VL" (Wang et al.), section 2.1: the first sections[1] pairs turn with axis 0,
--                the next with axis 1, ...; base^(-2i/D) over all pairs; split layout; `sections` is mrope_section in
--                Hugging Face transformers (16,24,24 for 128 channels); base 1000000.
--   woven        interleaved M-RoPE of Qwen3-VL ("Qwen3-VL Technical Report", section 2; transformers,
--                apply_interleaved_mrope): pair i turns with axis i mod P while that has pairs left, then with axis 0;
--                frequencies, layout and `sections` (24,20,20) as there; base 5000000.
-- order=1,0 gives the first pairs to the columns, as RoPE-ViT's code does. Coordinates of other resolutions than that
-- of training: coordinates=resampled (EVA-02).
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local P = pe.option("axes", 2, "axes of a position: h, w or t, h, w", { 2, 3 })
local arrangement = pe.option("arrangement", "sequential", "which pairs turn with which axis",
  { "sequential", "alternating", "sections", "woven" })
local bases = { sequential = 100.0, alternating = 10000.0, sections = 1000000.0, woven = 5000000.0 }
local has_sections = arrangement == "sections" or arrangement == "woven"
local base = pe.option("base", bases[arrangement], "frequency base; 100, 10000, 1000000 or 5000000 by arrangement")
local layout = pe.option("layout", has_sections and "split" or "interleaved",
  "pairs (2j, 2j+1) or (j, j + n/2); split for sections and woven", { "interleaved", "split" })
local sections = pe.option("sections", {}, "sections, woven: pairs of each axis, as mrope_section",
  { needs = { arrangement = { "sections", "woven" } } })
local factor = pe.option("factor", 1.0, "of all frequencies; 2 pi where coordinates are whole turns (DINOv3)")

if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end

local axes = P == 2 and { "h", "w" } or { "t", "h", "w" }
local order = require "order" (axes)
local position = pe.coordinates(axes)
local pairs_per_axis = D // (2 * P)
local span = 2 * P * pairs_per_axis
local axis_of, frequency_of -- of pair i; axes counted from 1

if has_sections then
  if #sections ~= P then
    error("option 'sections' needs the pairs of each of the " .. P .. " axes, as in -D sections=16,24,24")
  end
  local ends, total = {}, 0
  for a, count in ipairs(sections) do
    if count < 0 then error "option 'sections' has a negative number of pairs" end
    total = total + count
    ends[a] = total
  end
  span = 2 * total
  if total == 0 or span > D then
    error("option 'sections' names " .. total .. " pairs, 1 to " .. D // 2 .. " were expected")
  end
  axis_of = function(i)
    local a = 1
    if arrangement == "woven" then
      a = i % P + 1
      return i < P * sections[a] and a or 1
    end
    while i >= ends[a] do a = a + 1 end
    return a
  end
  frequency_of = function(i) return base ^ (-2 * i / span) end
elseif arrangement == "alternating" then
  axis_of = function(i) return i % P + 1 end
  frequency_of = function(i) return base ^ (-2 * P * (i // P) / D) end
else
  axis_of = function(i) return i // pairs_per_axis + 1 end
  frequency_of = function(i) return base ^ (-2 * P * (i % pairs_per_axis) / D) end
end

return pe.encoding {
  name = "rope_axial",
  doc = "axial rotary position embedding (Heo et al., eq. 9-10; VisionLLaMA; M-RoPE)",
  axes = axes,
  head_dim = D,
  block = pe.plane(),
  span = { 0, span },
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  models = {
    { "RoPE-ViT (axial)", base = 100, head_dim = 64, order = { 1, 0 } },
    { "VisionLLaMA", arrangement = "alternating", head_dim = 64 },
    {
      "EVA-02 at the resolution of its training", "timm's vit_*_patch16_rope_reg*_gap_256", base = 10000, head_dim = 64,
    },
    {
      "EVA-02 Ti/S at 336 pixels (24 x 24 patches, trained with 16 x 16)", base = 10000, head_dim = 64,
      coordinates = "resampled", cells = { 24, 24 }, trained = { 16, 16 },
    },
    {
      "EVA-02 B/L at 448 pixels (32 x 32 patches, trained with 16 x 16)", base = 10000, head_dim = 64,
      coordinates = "resampled", cells = { 32, 32 }, trained = { 16, 16 },
    },
    { "Perception Encoder", base = 10000, head_dim = 64, order = { 1, 0 }, origin = -1 },
    { "Qwen2-VL", "Qwen2.5-VL", axes = 3, arrangement = "sections", sections = { 16, 24, 24 }, head_dim = 128 },
    {
      "Qwen3-VL", axes = 3, arrangement = "woven", sections = { 24, 20, 20 }, head_dim = 128,
    },
    {
      "DINOv3 (14 x 14 patches)", layout = "split", head_dim = 64, factor = 2 * pe.pi, coordinates = "signed",
      cells = { 14, 14 },
    },
    {
      "DINOv3 (16 x 16 patches)", layout = "split", head_dim = 64, factor = 2 * pe.pi, coordinates = "signed",
      cells = { 16, 16 },
    },
    { "Qwen2-VL (vision)", "Qwen2.5-VL (vision)", base = 10000, layout = "split", head_dim = 80 },
  },
  phase = function(axis, i) return axes[order[axis_of(i)]] == axis and factor * frequency_of(i) or 0 end,
  position = position,
}
