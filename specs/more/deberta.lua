-- Disentangled attention: what a query makes of a distance, and what a key makes of it.
-- "DeBERTa" (He et al., 2021), equation 4, and "DeBERTaV3" (He et al., 2023), whose distances come in logarithmic
-- buckets (transformers' DisentangledSelfAttention, make_log_bucket_position): with d = i - j, S = position_buckets,
--   score(i, j) = (q_i . k_j + q_i . K_r[b + S] + k_j . Q_r[b + S]) / sqrt(3 D),  b = bucket(d), b + S kept below 2 S,
--   bucket(d) = d where |d| <= S / 2, else the sign of d times
--   ceil(log(|d| / (S/2)) / log((max_relative_positions - 1) / (S/2)) (S/2 - 1)) + S/2.
-- The products q_i . K_r and k_j . Q_r with all 2 S rows are the caller's: two small matrix products, by which
-- gradients reach the embeddings of distances. Positions are those of tokens, whole numbers.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local S = pe.option("position_buckets", 256, "buckets on either side; each distance has its own up to half of them")
local farthest = pe.option("max_relative_positions", 512, "distance from which on there is one bucket")
local mid = S // 2
if S < 4 or farthest - 1 <= mid then
  error("option 'max_relative_positions' is " .. farthest .. ", more than " .. mid + 1
    .. " was expected, half of at least 4 buckets and 1")
end

local c2p = pe.input {
  name = "c2p", shape = { 2 * S }, doc = "products of the query with each row of the keys' distances",
  source = "He et al., equation 4, content to position",
}
local p2c = pe.input {
  name = "p2c", shape = { 2 * S }, of = "key", doc = "products of the key with each row of the queries' distances",
  source = "He et al., equation 4, position to content",
}

-- A logarithm of whole numbers is a whole number itself at the last distance, or at least a thousandth more.
local LESS = 5e-4
local step = (mid - 1) / math.log((farthest - 1) / mid)

local function bucket(d)
  local size = pe.abs(d)
  local far = mid - pe.floor(LESS - step * pe.log(pe.max(size, mid) / mid))
  return pe.where(size, mid + 0.5, d, pe.where(d, 0, -far, far))
end

return pe.encoding {
  name = "deberta",
  doc = "disentangled attention by content and distance (DeBERTa, He et al.)",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  scale = (3 * D) ^ -0.5,
  models = {
    {
      "DeBERTa-v3-xsmall", "DeBERTa-v3-small", "DeBERTa-v3-base", "DeBERTa-v3-large", "DeBERTa-v2-xlarge",
      "DeBERTa-v2-xxlarge", "mDeBERTa-v3-base",
    },
  },
  bias = function(delta)
    local place = bucket(-delta.t) + S
    return (c2p(place) + p2c(place)) * (3 * D) ^ -0.5
  end,
}
