-- RoPE-Mixed: every pair of channels turns with all axes, at learned frequencies.
-- "Rotary Position Embedding for Vision Transformer" (Heo et al.), section 3.2, eq. 13-14:
--   angle of pair j in head h = sum over axes a of r_a freqs[a, h, j].
-- precision=float32 rounds as models do that multiply in float32. M-RoPE of Qwen's models is this, at the model's own
-- inv_freq: freqs[a, 1, j] is that of pair j where axis a turns it, and 0 elsewhere.
-- "Wavelet-Induced Rotary Encodings: RoPE Meets Graphs" (WIRE, Reid et al., arXiv:2509.22259) turns a graph's nodes so:
-- r has a node's entries of the lowest eigenvectors of the Laplacian.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with frequencies of their own; 1: all heads share them")
local P = pe.option("axes", 2, "axes of a position: h, w; t, h, w; or x1 to x8", { 2, 3, 4, 5, 6, 7, 8 })
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })
local rotary = pe.option("rotary_dim", 0, "channels that turn, from the first; 0: all")
local precision = pe.option("precision", "exact", "products of position and frequency", { "exact", "float32" })

if rotary < 0 or rotary % 2 == 1 or rotary > D then
  error("option 'rotary_dim' is " .. rotary .. ", an even number up to head_dim was expected")
end
local axes = P == 2 and { "h", "w" } or P == 3 and { "t", "h", "w" } or {}
for a = #axes + 1, P do axes[a] = "x" .. a end
local order = require "order" (axes) -- of the rows of freqs; RoPE-ViT's code has those of the columns first
local row = {}
for k, axis in ipairs(order) do row[axes[axis]] = k - 1 end

local freqs = pe.learned {
  name = "freqs",
  shape = { "axes", "heads", "blocks" },
  doc = "frequency of a pair of channels on an axis",
  units = "radians per unit of position",
  source = "Heo et al., eq. 13-14",
  init = pe.init {
    direction = "axes",
    same = { "blocks" },
    scale = function(_, _, j) return 10 ^ (-4 * j / D) end,
    doc = "for each head a random direction phi, for each pair base^(-4j/D) (cos phi, sin phi), base 10",
  },
  test_scale = 1.0,
}

return pe.encoding {
  name = "rope_mixed",
  doc = "rotary position embedding with learned mixed frequencies (Heo et al., eq. 13-14)",
  axes = axes,
  head_dim = D,
  heads = heads,
  block = pe.plane(),
  span = { 0, rotary > 0 and rotary or D - D % 2 },
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i, head) return freqs(row[axis], head, i) end,
  precision = precision .. " phases",
  models = {
    { "RoPE-ViT (mixed)", head_dim = 64, heads = 6, order = { 1, 0 } },
    { "Mochi 1", head_dim = 128, heads = 24, axes = 3 },
    {
      "Qwen2-VL (rounded phases)", "Qwen3-VL (rounded phases)", head_dim = 128, axes = 3, layout = "split",
      precision = "float32",
    },
    {
      "Qwen3.5 (rounded phases)", head_dim = 256, axes = 3, layout = "split", rotary_dim = 64,
      precision = "float32",
    },
    { "WIRE (8 eigenvectors)", head_dim = 64, axes = 8 },
  },
}
