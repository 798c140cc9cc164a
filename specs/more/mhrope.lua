-- Multi-Head RoPE: every head turns with one axis of a position, at all of RoPE's frequencies.
-- "Revisiting Multimodal Positional Encoding in Vision-Language Models" (Huang et al.), MHRoPE, and the authors' code
-- (JJJYmmm/Multimodal-RoPEs): the first sections[1] heads of k turn with axis 0, the next with axis 1, and so on, by
-- base^(-2i/D) in the split layout; heads that are left are not turned. q has a multiple of the heads of k, which take
-- turns as their head of k does. Spatial reset (h and w from 0 in each image or frame) is a matter of the positions.
local pe = require "pegen"

local D = pe.option("head_dim", 128, "channels per head")
local heads = pe.option("heads", 8, "heads of k")
local P = pe.option("axes", 3, "axes of a position: h, w or t, h, w", { 2, 3 })
local sections = pe.option("sections", P == 3 and { 2, 3, 3 } or { 4, 4 }, "heads of k that turn with each axis")
local base = pe.option("base", 5000000.0, "frequency base, by default that of Qwen3-VL")
local layout = pe.option("layout", "split", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })

local axes = P == 2 and { "h", "w" } or { "t", "h", "w" }
if #sections ~= P then
  error("option 'sections' needs the heads of each of the " .. P .. " axes, as in -D sections=2,3,3")
end
local axis_of = {} -- of a head, from 1
for a, count in ipairs(sections) do
  if count < 0 then error "option 'sections' has a negative number of heads" end
  for _ = 1, count do axis_of[#axis_of + 1] = axes[a] end
end
if #axis_of > heads then
  error("option 'sections' names " .. #axis_of .. " heads, at most the " .. heads .. " there are were expected")
end

return pe.encoding {
  name = "mhrope",
  doc = "each head turns with one axis (MHRoPE, Huang et al.)",
  axes = axes,
  head_dim = D,
  heads = heads,
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i, head) return axis_of[head + 1] == axis and base ^ (-2 * i / (D - D % 2)) or 0 end,
}
