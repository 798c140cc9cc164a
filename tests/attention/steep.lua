-- A penalty so steep that it is infinite in float32 a few tokens away, by a slope that is learned: pairs that it hides
-- give nothing to what the slope gains.
local pe = require "pegen"

local slope = pe.learned { name = "slope", shape = { "heads" }, doc = "of each head's penalty, before softplus" }

return pe.encoding {
  name     = "steep",
  axes     = { "h", "w" },
  head_dim = pe.option("head_dim", 16, "channels"),
  heads    = pe.option("heads", 2, "heads"),
  role     = "pairwise",
  bias     = function(delta, head) return -pe.softplus(slope(head)) * pe.exp(4 * pe.norm(delta)) end,
}
