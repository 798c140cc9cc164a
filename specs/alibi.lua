-- ALiBi: a penalty proportional to the distance, with a slope for each head.
-- "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation" (Press et al.), section 3:
-- the bias is not scaled with q.k; in one dimension it goes with causal attention. In two ("CROMA", Fuller et al.,
-- section 3) and three dimensions the distance is Euclidean:
--   bias = -slope_h |r_j - r_i|.
-- Slopes are 2^(-8(h+1)/H); where H is no power of 2, those of the power below it, then every other one of twice that
-- power, as the authors' code has it.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local H = pe.option("heads", 8, "heads")
local P = pe.option("axes", 1, "axes of a position: t; h, w; or t, h, w", { 1, 2, 3 })

local power = 1
while 2 * power <= H do power = 2 * power end

local function slope(head)
  if head < power then return 2 ^ (-8 * (head + 1) / power) end
  return 2 ^ (-8 * (2 * (head - power) + 1) / (2 * power))
end

return pe.encoding {
  name = "alibi",
  doc = "attention with linear biases (Press et al.), Euclidean in several dimensions",
  axes = ({ { "t" }, { "h", "w" }, { "t", "h", "w" } })[P],
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = H,
  models = {
    { "MPT-7B", head_dim = 128, heads = 32 },
    { "BLOOM 176B", head_dim = 128, heads = 112 },
    { "Baichuan-13B", head_dim = 128, heads = 40 },
    { "CROMA", axes = 2, head_dim = 48, heads = 16 },
  },
  bias = function(delta, head) return -slope(head) * pe.norm(delta) end,
}
