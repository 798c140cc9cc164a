-- Sandwich: the products of sinusoidal embeddings alone, as a bias, with a strength of each head's own.
-- "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis" (Chi et al.), section 5 and
-- the code of its appendix:
--   bias = (sum over i < d/2 of cos(delta base^(-2i/d))) H / (8 (h + 1)), d = 128 whatever the head's size.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local heads = pe.option("heads", 12, "heads")
local d = pe.option("embedding_dim", 128, "channels of the sinusoidal embeddings that are multiplied")
local base = pe.option("base", 10000.0, "frequency base")

return pe.encoding {
  name = "sandwich",
  doc = "products of sinusoidal embeddings as a bias (Sandwich, Chi et al., section 5)",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = heads,
  bias = function(delta, head)
    local sum = pe.sum(d // 2, function(i) return pe.cos(delta.t * base ^ (-2 * i / d)) end)
    return sum * (heads / (8 * (head + 1)))
  end,
}
