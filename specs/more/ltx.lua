-- The rotation of LTX-Video and LTX-2: pairs are counted over the channels of all heads, which so differ.
-- "LTX-Video: Realtime Video Latent Diffusion" (HaCohen et al.); diffusers, LTXVideoRotaryPosEmbed and
-- LTX2AudioVideoRotaryPosEmbed. The first pairs, for which no frequency is left, stay; then come P of each frequency,
-- one an axis: frequency k of n is pi/2 base^(k/(n-1)). A coordinate is the fraction r / extent, moved to [-1, 1].
-- LTX-Video's code makes frequencies in float32, by which it differs by 1e-3: the operand takes them from there.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 32, "heads, each with frequencies of its own")
local P = pe.option("axes", 3, "axes of a position: t, h, w, or t alone (audio of LTX-2)", { 1, 3 })
local base = pe.option("base", 10000.0, "how many times the slowest frequency the fastest is")
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1), or (j, j + D/2) as LTX-2's",
  { "interleaved", "split" })
local extent = pe.option("extent", P == 1 and { 20 } or { 20, 2048, 2048 },
  "length of each axis in units of position; 1,1,1 where coordinates are fractions")
local precision = pe.option("precision", "float32", "product of position and frequency: float32 as in the models' code",
  { "float32", "exact" })

local axes = P == 1 and { "t" } or { "t", "h", "w" }
if #extent ~= P then
  error("option 'extent' has " .. #extent .. " lengths, one for each of the " .. P .. " axes was expected")
end
local half = D // 2
local count = heads * half // P -- of frequencies
if count < 1 then error("option 'head_dim' is " .. D .. ", a pair of channels for each axis was expected") end
local rest = heads * half - P * count -- pairs that stay
local length = {}
for a, axis in ipairs(axes) do length[axis] = extent[a] end

local frequencies = pe.learned {
  name = "frequencies",
  shape = { count },
  doc = "what a pair turns by from the middle to the end of its axis",
  units = "radians",
  source = "diffusers, LTXVideoRotaryPosEmbed",
  init = function(k) return math.pi / 2 * base ^ (count > 1 and k / (count - 1) or 0) end,
}

return pe.encoding {
  name = "ltx",
  doc = "rotation of LTX-Video and LTX-2 (HaCohen et al.)",
  axes = axes,
  head_dim = D,
  heads = heads,
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  position = function(axis, r) return 2 * r / length[axis] - 1 end,
  precision = precision .. " phases",
  phase = function(axis, i, head)
    local pair = head * half + i - rest
    local turns = pair >= 0 and axes[pair % P + 1] == axis
    return frequencies(math.max(pair, 0) // P) * (turns and 1 or 0)
  end,
  models = {
    { "LTX-Video", "arXiv 2501.00103", head_dim = 64, extent = { 1, 1, 1 } },
    { "LTX-2 (video)", layout = "split", head_dim = 128, extent = { 1, 1, 1 } },
    { "LTX-2 (audio)", layout = "split", axes = 1, head_dim = 64, extent = { 1 } },
  },
}
