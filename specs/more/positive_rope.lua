-- RoPE of maps of channels: a channel's new value is made of what it held alone, and then pairs turn.
-- With `softplus` no channel is below 0 before it turns, as lengths are in PoPE ("Decoupling the "What" and "Where"
-- With Polar Coordinate Positional Embeddings", Gopalakrishnan et al.), where each channel is a length by itself and
-- becomes a pair: what a score loses of sign by it, it loses here, too, while rows stay as wide as they are.
--   q~ = R(t theta) f(q),   k~ = R(s theta) f(k),   theta_i = base^(-2i/n)
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base")
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })
local map = pe.option("map", "softplus", "what becomes of a channel", { "softplus", "tanh", "exp", "square", "elu" })

local maps = {
  softplus = pe.softplus,
  tanh = pe.tanh,
  exp = pe.exp,
  square = function(x) return x * x end,
  elu = function(x) return pe.where(x, 0, pe.exp(pe.min(x, 0)), x + 1) end, -- elu + 1, as linear attention has it
}

return pe.encoding {
  name = "positive_rope",
  doc = "RoPE of channels that are mapped first, one by one (softplus, as PoPE's lengths)",
  axes = { "t" },
  head_dim = D,
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  phase = function(_, i) return base ^ (-2 * i / D) end,
  pre = function(x) return maps[map](x) end,
}
