-- Attention without a position encoding: softmax(scale q k^T) v, tiled, scores never stored.
-- What the pairwise encodings are measured against; "FlashAttention" (Dao et al.), algorithm 1, is the same sum.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")

return pe.encoding {
  name = "attention",
  doc = "attention without position encoding",
  role = "pairwise",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
}
