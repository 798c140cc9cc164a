-- FoX: attention that forgets by gates ("Forgetting Transformer: Softmax Attention with a Forget Gate", Lin et al.,
-- 2025). Tokens have forget gates f_t = sigmoid(w . x_t + b), one a head, and a score is less by what was forgotten
-- between its two tokens (equations 3 to 5):
--   o_i = sum over j <= i of softmax(q_i . k_j / sqrt(D) + D_ij)_j v_j,   D_ij = sum over j < l <= i of ln f_l
--   = c_i - c_j,
-- where c is the sum of ln f up to a token. The sums are the caller's, of logsigmoid, by pegen_scan_tokens: `c` of the
-- queries and `key_c` of the keys, which are one tensor but where keys are a cache's. Nothing else tells positions.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", D, "channels of a value row")
local source = "Forgetting Transformer, Lin et al., equations 3 to 5"

local c = pe.input {
  name = "c", shape = {}, doc = "sum of the logarithms of forget gates up to the query", source = source,
  test_scale = 4,
}
local key_c = pe.input {
  name = "key_c", shape = {}, of = "key", doc = "the same up to the key", source = source, test_scale = 4,
}

return pe.encoding {
  name = "fox",
  doc = "attention that forgets by gates of its tokens (Forgetting Transformer, Lin et al.)",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv,
  score = function(s, _, _, query, key)
    return pe.where(query.i, key.j, pe.masked, s + (c() - key_c()))
  end,
}
