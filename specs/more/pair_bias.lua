-- A bias of each pair of tokens that the model computes: additive masks, and biases of graphs and structures.
-- "AlphaFold" (Jumper et al., 2021), supplement, algorithms 7, 13 and 14, whose b_ij is a projection of the pair
-- representation; "Graphormer" (Ying et al., 2021), equation 6, whose phi(v_i, v_j) is a learned number of their
-- distance in the graph; PyTorch's attn_mask of numbers:
--   score(i, j) = q_i . k_j / sqrt(D) + bias_ij.
-- The tensor is [B,H,N,M], its B and H also 1 for all. Where it is -infinity the key is hidden.
local pe = require "pegen"

local D = pe.option("head_dim", 32, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")

local bias = pe.input {
  name = "bias", shape = {}, of = "pair", doc = "added to the score of the query and the key",
  source = "Jumper et al., algorithm 7, line 5; Ying et al., equation 6",
}

return pe.encoding {
  name = "pair_bias",
  doc = "a bias of each pair of tokens (AlphaFold, Graphormer, additive masks)",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  bias = function() return bias() end,
}
