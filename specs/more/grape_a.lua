-- Additive GRAPE: a position acts as a unipotent matrix on rows that are longer by constants, and what is left of it in
-- a score is a bias that is linear in the displacement, with slopes that tokens may gate.
-- "Group Representational Position Encoding" (Zhang et al.), section on additive GRAPE: G(n) = I + n omega A, A^2 = 0, so
-- that q_i and k_j, with constants behind them, score
--   q_i . k_j / sqrt(d) + (j - i) omega_h (lambda(u . q_i) + lambda(w . k_j)),   lambda = softplus.
-- gates says whose terms there are: query, key, both, or none, where the bracket is 1 and the bias is ALiBi's. `slope` is
-- omega, `query_gate` and `key_gate` are u . q_i and w . k_j as the caller made them. Where decay is no function of two
-- tokens but a sum over those between them, it is FoX (fox.lua). The authors' path integral (GRAPE-AP) sums, for each
-- query, what all keys between say of it: a second pass over all pairs, which no bias of two tokens is.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", D, "channels of a value row")
local heads = pe.option("heads", 1, "heads with slopes of their own; 1: all heads share one")
local gates = pe.option("gates", "key", "whose tokens gate the slope", { "none", "query", "key", "both" })
local source = "Zhang et al., additive GRAPE"

local slope = pe.learned {
  name = "slope", shape = { "heads" }, doc = "omega: how fast a score falls with the distance", source = source,
  units = "1 per unit of position",
  init = pe.init { value = function(h) return 2 ^ (-8 * (h + 1) / heads) end, doc = "ALiBi's slopes" },
}
local query = (gates == "query" or gates == "both") and pe.input {
  name = "query_gate", shape = {}, doc = "u . q of the query's token, before the softplus", source = source,
}
local key = (gates == "key" or gates == "both") and pe.input {
  name = "key_gate", shape = {}, of = "key", doc = "w . k of the key's token, before the softplus", source = source,
}

return pe.encoding {
  name = "grape_a",
  doc = "biases linear in the displacement, gated by tokens (additive GRAPE, Zhang et al.)",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv,
  heads = heads,
  bias = function(delta, head)
    local gate = gates == "none" and 1 or 0
    if query then gate = gate + pe.softplus(query()) end
    if key then gate = gate + pe.softplus(key()) end
    return delta.t * slope(head) * gate
  end,
}
