-- Attention of DeepSeek-V4: keys are values, too, whose rotation is undone on the output; and a sink a head.
-- transformers, modeling_deepseek_v4.py (DeepseekV4Attention), of the rows that it attends to, compressed or not:
--   out_i = R(p_i)^-1 sum over j of exp(s_ij) R(p_j) c_j / (exp(sink) + sum over j of exp(s_ij)),
--   s_ij = D^-0.5 <R(p_i) q_i, R(p_j) c_j>,
-- where R turns the last `rotary_dim` channels of D by RoPE. c is given as k and as v, unrotated, for all heads of q.
-- Which rows are compressed, and which of these a query sees, is the caller's. A window of w sees the last w tokens.
local pe = require "pegen"

local D = pe.option("head_dim", 512, "channels per head")
local rotary = pe.option("rotary_dim", math.min(64, D - D % 2), "channels that turn, the last; 64 of a larger head")
local base = pe.option("base", 10000.0, "frequency base", { range = { 10.0, 1e7 } })
local heads = pe.option("heads", 8, "heads of q")
local window = pe.option("window", 0, "tokens that a query sees; 0: all", { range = { 0, 1 << 30 } })

if rotary < 2 or rotary % 2 == 1 or rotary > D then
  error("option 'rotary_dim' is " .. rotary .. ", an even number up to head_dim was expected")
end
if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end

local sinks = pe.learned {
  name = "sinks",
  shape = { "heads" },
  doc = "a score more in the softmax of every row, whose value is 0",
  source = "transformers, DeepseekV4Attention",
  init = 0,
}

return pe.encoding {
  name = "deepseek_v4",
  doc = "attention whose keys are values, turned back on the output, with a sink a head (DeepSeek-V4)",
  role = "pairwise",
  axes = { "t" },
  head_dim = D,
  heads = heads,
  block = pe.plane(),
  span = { D - rotary, rotary },
  generators = pe.turn "e12",
  phase = function(_, i) return base ^ (-2 * i / rotary) end,
  values = "same",
  score = window > 0 and function(s, _, _, query, key)
    return pe.where(query.i - key.j, window, s, pe.masked)
  end or nil,
  sink = function(head) return sinks(head) end,
  models = {
    { "DeepSeek-V4 (attention to a window)", heads = 64, window = 128 },
  },
}
