-- RoPE as a rotation of pairs: the score is that of rope.lua's q and k, which need no such kernel.
local pe = require "pegen"

return pe.encoding {
  name = "rope_pairwise",
  role = "pairwise",
  axes = { "t" },
  head_dim = 32,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 10000.0 ^ (-2 * i / 32) end,
}
