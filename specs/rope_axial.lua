-- Axial RoPE: every pair of channels turns with one axis of a grid.
-- The arrangement says which pair listens to which axis, and at what frequency (P axes, D channels that turn):
--   sequential   the pairs of axis 0 first, then axis 1, ...; base^(-2Pj/D), j counted anew on each axis.
--                "Rotary Position Embedding for Vision Transformer" (Heo et al.), eq. 9-10; base 100. The default.
--                With `sections`, axis a has n = sections[a] pairs, which turn at base^(-j/n): FLUX, Wan, HunyuanVideo
--                and others in diffusers, whose axes_dim is twice that; `stretch` is rope_scale of Cosmos.
--   staggered    as sequential, but the pairs of axis a turn at base^(-2(Pj+a)/D): Pixtral's in transformers.
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
local P = pe.option("axes", 2, "axes of a position: h, w; t, h, w; or t, h, w, l", { 2, 3, 4 })
local arrangement = pe.option("arrangement", "sequential", "which pairs turn with which axis",
  { "sequential", "staggered", "alternating", "sections", "woven" })
local default_base = {
  sequential = 100.0, staggered = 10000.0, alternating = 10000.0, sections = 1000000.0, woven = 5000000.0,
}
local is_mrope = arrangement == "sections" or arrangement == "woven"
local base = pe.option("base", default_base[arrangement],
  "frequency base; 100, 10000, 1000000 or 5000000 by arrangement")
local layout = pe.option("layout", is_mrope and "split" or "interleaved",
  "pairs (2j, 2j+1) or (j, j + n/2), of all n channels or of each axis; split for sections and woven",
  { "interleaved", "split", "split_axes" })
local sections = pe.option("sections", {}, "pairs of each axis: mrope_section of sections and woven; half of axes_dim",
  { needs = { arrangement = { "sequential", "sections", "woven" } } })
local rotary = pe.option("rotary_dim", 0, "channels that turn, from the first; 0: all, or those of sections")
local stretch = pe.option("stretch", {}, "NTK factor of each axis: its n pairs have the base base * s^(n / (n - 1))",
  { needs = { arrangement = "sequential" } })
local factor = pe.option("factor", 1.0, "of all frequencies; 2 pi where coordinates are whole turns (DINOv3)")

if rotary < 0 or rotary % 2 == 1 or rotary > D then
  error("option 'rotary_dim' is " .. rotary .. ", an even number up to head_dim was expected")
end
local R = rotary > 0 and rotary or D
if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end
if #stretch ~= 0 and #stretch ~= P then error("option 'stretch' needs the factor of each of the " .. P .. " axes") end
for _, s in ipairs(stretch) do
  if s < 1 then error("option 'stretch' has " .. s .. ", numbers of at least 1 were expected") end
end
if (is_mrope or #sections > 0) and #sections ~= P then
  error("option 'sections' needs the pairs of each of the " .. P .. " axes, as in -D sections=16,24,24")
end

local axes = ({ [2] = { "h", "w" }, [3] = { "t", "h", "w" }, [4] = { "t", "h", "w", "l" } })[P]
local order = require "order" (axes)
local position = pe.coordinates(axes)
local first, total = {}, 0 -- pair of each axis, counted from 0
for a = 1, P do
  local count = sections[a] or R // (2 * P)
  if count < 0 then error "option 'sections' has a negative number of pairs" end
  first[a], total = total, total + count
end
if #sections > 0 and (total == 0 or 2 * total > R) then
  error("option 'sections' names " .. total .. " pairs, 1 to " .. R // 2 .. " were expected")
end
if rotary > 0 and #sections > 0 and 2 * total ~= rotary then
  error("option 'sections' names " .. total .. " pairs, the " .. rotary // 2 .. " of 'rotary_dim' were expected")
end
if rotary > 0 and total == 0 then
  error("option 'rotary_dim' is " .. rotary .. ", at least " .. 2 * P .. " was expected: a pair of each axis")
end

if layout == "split_axes" and arrangement ~= "sequential" and arrangement ~= "staggered" then
  error("layout=split_axes is of axes one after the other, arrangement is '" .. arrangement .. "'")
end

-- The axis of pair i, counted from 1.
local function axis_of(i)
  if arrangement == "alternating" then return i % P + 1 end
  if arrangement == "woven" then return i < P * sections[i % P + 1] and i % P + 1 or 1 end
  local a = P
  while i < first[a] do a = a - 1 end
  return a
end

-- Channel of component c of pair i, where an axis' pairs lie apart among its own channels.
local function of_axes(c, i)
  local a = axis_of(i)
  return first[a] + i + c * ((first[a + 1] or total) - first[a])
end

local function frequency_of(i)
  if is_mrope then return base ^ (-i / total) end
  if arrangement == "alternating" then return base ^ (-2 * P * (i // P) / R) end
  local a = axis_of(i)
  if arrangement == "staggered" then return base ^ (-2 * (P * (i - first[a]) + a - 1) / R) end
  local n = sections[a] or R / (2 * P)
  local ntk = stretch[a] and stretch[a] > 1 and stretch[a] ^ (n / (n - 1)) or 1
  return (ntk * base) ^ (-(i - first[a]) / n)
end

return pe.encoding {
  name = "rope_axial",
  doc = "axial rotary position embedding (Heo et al., eq. 9-10; VisionLLaMA; M-RoPE)",
  axes = axes,
  head_dim = D,
  block = pe.plane(),
  span = { 0, 2 * total },
  layout = layout == "split_axes" and of_axes or layout,
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
    { "Pixtral (vision)", arrangement = "staggered", layout = "split", head_dim = 64 },
    { "Gemma 4 (vision)", layout = "split_axes", head_dim = 64, order = { 1, 0 } },
    { "SAM 2 (memory attention)", base = 10000, order = { 1, 0 }, head_dim = 256 },
    { "SAM 3 (vision, windows)", base = 10000, order = { 1, 0 }, head_dim = 64 },
    { "Llama 4 (vision)", base = 10000, order = { 1, 0 }, origin = -1, head_dim = 88 },
    { "Perception Encoder", base = 10000, head_dim = 64, order = { 1, 0 }, origin = -1 },
    { "Qwen2-VL", "Qwen2.5-VL", axes = 3, arrangement = "sections", sections = { 16, 24, 24 }, head_dim = 128 },
    {
      "Qwen3-VL", axes = 3, arrangement = "woven", sections = { 24, 20, 20 }, head_dim = 128,
    },
    {
      "Qwen3.5", axes = 3, arrangement = "woven", sections = { 11, 11, 10 }, head_dim = 256, base = 10000000,
    },
    { "FLUX.1", "Chroma", axes = 3, sections = { 8, 28, 28 }, head_dim = 128, base = 10000 },
    { "FLUX.2", axes = 4, sections = { 16, 16, 16, 16 }, head_dim = 128, base = 2000 },
    { "Qwen-Image", axes = 3, sections = { 8, 28, 28 }, head_dim = 128, base = 10000 },
    { "Z-Image", axes = 3, sections = { 16, 24, 24 }, head_dim = 128, base = 256 },
    { "Lumina-Image 2.0", axes = 3, sections = { 16, 16, 16 }, head_dim = 96, base = 10000 },
    { "Wan 2.1", "Wan 2.2", axes = 3, sections = { 22, 21, 21 }, head_dim = 128, base = 10000 },
    { "HunyuanVideo", axes = 3, sections = { 8, 28, 28 }, head_dim = 128, base = 256 },
    { "CogVideoX 5B", axes = 3, sections = { 8, 12, 12 }, head_dim = 64, base = 10000 },
    {
      "Cosmos-Predict1", axes = 3, sections = { 22, 21, 21 }, head_dim = 128, base = 10000, layout = "split",
      stretch = { 2, 1, 1 },
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
