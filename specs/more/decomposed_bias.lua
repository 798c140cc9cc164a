-- Decomposed relative positions of images: what a query makes of each distance along each axis.
-- "MViTv2" (Li et al., 2022), section 4.1, equation 3; as ViTDet and SAM have them (transformers'
-- SamVisionAttention.get_decomposed_rel_pos): with tables R_h [2H-1, D] and R_w [2W-1, D],
--   score(i, j) = q_i . k_j / sqrt(D) + q_i . R_h[h_i - h_j + H - 1] + q_i . R_w[w_i - w_j + W - 1].
-- The products q_i . R, of a query's row that is not scaled with all rows of a table, are the caller's: two small
-- matrix products, by which gradients reach the tables. No bias [N, N] is ever written.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local H = pe.option("window_h", 14, "height of a window, or of the image, in tokens")
local W = pe.option("window_w", 14, "the same, width")

local function products(axis, size)
  return pe.input {
    name = "rel_" .. axis,
    shape = { 2 * size - 1 },
    doc = "products of the query with each row of the table of axis " .. axis,
    source = "Li et al., equation 3",
  }
end

local rel_h, rel_w = products("h", H), products("w", W)

return pe.encoding {
  name = "decomposed_bias",
  doc = "decomposed relative positions of images (MViTv2, ViTDet, SAM)",
  axes = { "h", "w" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  models = {
    { "SAM (windows)", "ViTDet (windows)", "DeepSeek-OCR (SAM's windows)", window_h = 14, window_w = 14 },
    {
      "SAM ViT-B (global layers)", "SAM ViT-L (global layers)", "DeepSeek-OCR (SAM's global layers, 1024 pixels)",
      window_h = 64, window_w = 64,
    },
    { "SAM ViT-H (global layers)", window_h = 64, window_w = 64, head_dim = 80 },
  },
  bias = function(delta) return rel_h(H - 1 - delta.h) + rel_w(W - 1 - delta.w) end,
}
