-- Attention of gpt-oss: every head has a learned sink, and every other layer a window.
-- "gpt-oss-120b & gpt-oss-20b Model Card" (OpenAI, arXiv:2508.10925), section 2; as in transformers' GptOssAttention:
--   out = sum over j of exp(s_ij) v_j / (exp(sink) + sum over j of exp(s_ij)),
-- a window of w sees the last w tokens, the query's own among them. Calls are causal; q and k come rotated (rope.lua).
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local heads = pe.option("heads", 8, "heads of q")
local window = pe.option("window", 0, "tokens that a query sees; 0: all", { range = { 0, 1 << 30 } })

local sinks = pe.learned {
  name = "sinks",
  shape = { "heads" },
  doc = "a score more in the softmax of every row, whose value is 0",
  source = "OpenAI, section 2",
  init = pe.init { normal = 0.02, doc = "normal, standard deviation initializer_range" },
}

return pe.encoding {
  name = "gpt_oss",
  doc = "attention with a learned sink a head (gpt-oss, OpenAI, section 2)",
  role = "pairwise",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = heads,
  score = window > 0 and function(s, _, _, query, key)
    return pe.where(query.i - key.j, window, s, pe.masked)
  end or nil,
  sink = function(head) return sinks(head) end,
  models = {
    { "gpt-oss (layers of global attention)", heads = 64 },
    { "gpt-oss (layers of local attention)", heads = 64, window = 128 },
  },
}
