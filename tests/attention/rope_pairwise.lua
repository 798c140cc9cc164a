-- RoPE as a rotation of pairs: the score is that of rope.lua's q and k, which need no such kernel.
local pe = require "pegen"

local slope = pe.option("biased", false, "a learned slope beside it")
  and pe.learned { name = "slope", shape = { 1 }, doc = "of a step" }

return pe.encoding {
  name = "rope_pairwise",
  role = "pairwise",
  axes = { "t" },
  head_dim = 32,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 10000.0 ^ (-2 * i / 32) end,
  bias = slope and function(delta) return slope(0) * pe.abs(delta.t) end or nil,
}
