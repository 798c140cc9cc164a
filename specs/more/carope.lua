-- CARoPE: RoPE whose frequencies are made of the tokens, head by head ("Context-aware Rotary Position Embedding",
-- Veisi et al.):
--   phi_i(m) = sum over t <= m of f_h(x_t)^i,   f_h(x) = 1 / (1 + softplus(W_h x)), between 0 and 1,
-- in place of RoPE's m theta^i: pair i of head h turns by phi_i(m) at token m. Where f is the same for all tokens that
-- is f^i m, RoPE. The sums over tokens are the caller's: the input `phase`.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })

local phase = pe.input {
  name = "phase", shape = { D // 2 }, doc = "the sum of f(x)^i over the tokens up to this one, of each pair i",
  units = "radians", source = "Context-aware Rotary Position Embedding, Veisi et al.", test_scale = 100,
}

return pe.encoding {
  name = "carope",
  doc = "RoPE by frequencies that tokens make (CARoPE, Veisi et al.)",
  axes = { "t" },
  head_dim = D,
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  phase = function(_, i) return phase(i) end,
  position = function() return 1 end, -- the sums have counted the tokens
}
