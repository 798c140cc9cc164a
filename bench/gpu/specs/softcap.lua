-- Attention whose scores are capped: cap tanh(s / cap), as in Gemma 2. bench/gpu times a score that is a function of s.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local cap = pe.option("cap", 50.0, "bound of a score")

return pe.encoding {
  name = "softcap",
  doc = "attention with capped scores",
  role = "pairwise",
  axes = { "t" },
  head_dim = D,
  score = function(s) return cap * pe.tanh(s / cap) end,
}
