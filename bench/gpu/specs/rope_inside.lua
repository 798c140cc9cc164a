-- RoPE inside attention: bench/gpu times the rotation of queries and keys in the attention kernel itself.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")

return pe.encoding {
  name = "rope_inside",
  doc = "attention that rotates its queries and keys (Su et al., RoFormer)",
  role = "pairwise",
  axes = { "t" },
  head_dim = D,
  block = pe.plane(),
  layout = "split",
  generators = pe.turn "e12",
  phase = function(_, i) return 10000.0 ^ (-2 * i / D) end,
}
