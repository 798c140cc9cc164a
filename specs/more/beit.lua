-- BEiT: Swin's biases of displacements, and three more for pairs with the class token.
-- "BEiT: BERT Pre-Training of Image Transformers" (Bao et al.), as in the authors' code and in transformers
-- (BeitRelativePositionBias): the table has (2 H - 1)(2 W - 1) rows, of displacement (query less key)
--   (h + H - 1)(2 W - 1) + w + W - 1,
-- and then those of class to patch, patch to class and class to class.
-- A bias sees differences of coordinates alone. Which of the two is the class token is told by the third: 0 of a
-- patch; of the class token 1 in `positions` (of queries) and 2 in `k_positions`. Its h and w may be anything.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 12, "heads")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local H = pe.option("window_h", 14, "patches along the height")
local W = pe.option("window_w", 14, "patches along the width")

local patches = (2 * H - 1) * (2 * W - 1)
local table = pe.learned {
  name = "relative_position_bias_table",
  shape = { patches + 3, "heads" },
  doc = "bias by displacement, query less key, row by row; then class to patch, patch to class, class to class",
  source = "Bao et al.; BeitRelativePositionBias",
  init = pe.init { value = 0, doc = "0, as in the authors' code" },
  test_scale = 1.0,
}

return pe.encoding {
  name = "beit",
  doc = "relative position bias from a learned table, with rows of the class token (BEiT, Bao et al.)",
  axes = { "h", "w", "class" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = heads,
  bias = function(delta, head)
    local h = pe.min(pe.max(H - 1 - delta.h, 0), 2 * H - 2)
    local w = pe.min(pe.max(W - 1 - delta.w, 0), 2 * W - 2)
    local of_patches = h * (2 * W - 1) + w
    local of_class = pe.where(delta.class, 0, patches, pe.where(1.5, delta.class, patches + 1, patches + 2))
    return table(pe.where(pe.abs(delta.class), 0.5, of_patches, of_class), head)
  end,
  models = {
    { "BEiT-B/16", "data2vec-vision-base", heads = 12 },
    { "BEiT-L/16", heads = 16 },
  },
}
