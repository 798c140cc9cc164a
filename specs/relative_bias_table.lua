-- A learned bias for every displacement in a window.
-- "Swin Transformer" (Liu et al.), section 3.2, eq. 4: Attention = SoftMax(Q K^T / sqrt d + B) V, the entries of B
-- taken from a smaller table by relative position. The index is that of the authors' code,
--   ((h_i - h_j) + H - 1) (2 W - 1) + (w_i - w_j) + W - 1,
-- with i the query and j the key; positions are whole numbers inside one window of H x W. A displacement that does not
-- fit into the window reads the table's nearest edge.
local pe = require "pegen"

local D = pe.option("head_dim", 32, "channels per head")
local heads = pe.option("heads", 4, "heads")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local H = pe.option("window_h", 7, "height of a window")
local W = pe.option("window_w", 7, "width of a window")

local table = pe.learned {
  name = "relative_position_bias_table",
  shape = { 2 * H - 1, 2 * W - 1, "heads" },
  doc = "bias by displacement, query less key; the authors' [(2H-1)(2W-1), heads] is the same memory",
  source = "Liu et al., eq. 4",
  init = pe.init { normal = 0.02, between = { -2, 2 }, doc = "normal, standard deviation 0.02, truncated at 2" },
}

return pe.encoding {
  name = "relative_bias_table",
  doc = "relative position bias from a learned table (Swin, Liu et al., eq. 4)",
  axes = { "h", "w" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = heads,
  models = {
    { "Swin-T (first stage)", "Swin-S (first stage)", window_h = 7, window_w = 7, heads = 3, head_dim = 32 },
    { "Swin-B (first stage)", window_h = 7, window_w = 7, heads = 4, head_dim = 32 },
  },
  bias = function(delta, head) return table(H - 1 - delta.h, W - 1 - delta.w, head) end,
}
