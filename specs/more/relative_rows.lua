-- Rows of distances that a query is multiplied with: what a query makes of how far a key is behind or before it.
-- "Self-Attention with Relative Position Representations" (Shaw et al., 2018), equation 5, distances clipped to k; with
-- the vectors u and v of "Transformer-XL" (Dai et al., 2019), section 3.3, as "Conformer" (Gulati et al., 2020) has it:
--   score(i, j) = ((q_i + u) . k_j + (q_i + v) . R[clip(j - i, -behind, ahead) + behind]) / sqrt(D).
-- The products (q_i + v) . R with all rows are the caller's, as is q_i + u: a small matrix product, by which gradients
-- reach R and v. No shift of an [N, 2N-1] tensor is made. R has the row of the farthest key behind the query first, as
-- NeMo and transformers (pos_seq from klen - 1 down) have it; causal layers have ahead = 0. Shaw's rows that are added
-- to values (equation 3) are not said here.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local behind = pe.option("behind", 127, "distance to keys before the query up to which each has its own row")
local ahead = pe.option("ahead", 127, "the same of keys behind it; 0: causal layers")
for name, distance in pairs { behind = behind, ahead = ahead } do
  if distance < 0 then error("option '" .. name .. "' is " .. distance .. ", 0 or more tokens were expected") end
end

local products = pe.input {
  name = "products", shape = { behind + ahead + 1 },
  doc = "products of the query with the row of each distance, key less query, from -behind to ahead",
  source = "Shaw et al., equation 5; Dai et al., section 3.3, terms b and d",
}

return pe.encoding {
  name = "relative_rows",
  doc = "products of queries with rows of distances (Shaw et al.; Transformer-XL; Conformer)",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  models = {
    { "Wav2Vec2-BERT 2.0", "SeamlessM4T v2 (speech encoder)", behind = 64, ahead = 8 },
    { "Shaw et al. (base, k = 16)", behind = 16, ahead = 16 },
    { "Transformer-XL (base, WikiText-103, memory of 150)", head_dim = 41, behind = 299, ahead = 0 },
    { "Conformer of NeMo, FastConformer (up to 512 frames)", head_dim = 64, behind = 511, ahead = 511 },
  },
  bias = function(delta) return products(delta.t + behind) * D ^ -0.5 end,
}
