-- T5's relative positions: a learned bias for each head and each bucket of distances.
-- "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer" (Raffel et al.), section 2.1;
-- buckets as in the authors' code and in transformers (T5Attention._relative_position_bucket): with d = key - query,
--   n = |d| (causal: of keys that lie behind), E = half of the buckets (of one direction),
--   bucket = n for n < E, else E + floor(log(n / E) / log(max_distance / E) (buckets - E)), at most the last;
-- of both directions, keys ahead have the second half of the buckets. Scores of T5 are not scaled.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local heads = pe.option("heads", 8, "heads")
local buckets = pe.option("num_buckets", 32, "buckets, of both directions together")
local farthest = pe.option("max_distance", 128, "distance from which on there is one bucket")
local causal = pe.option("causal", false, "keys ahead of the query count as at no distance (T5's decoder)")

local each = causal and buckets or buckets // 2 -- of one direction
local exact = each // 2
if exact < 1 or farthest <= exact then
  error("option 'max_distance' is " .. farthest .. ", more than " .. exact ..
    " was expected, a quarter of the buckets or, causal, half of them")
end

local table = pe.learned {
  name = "relative_attention_bias",
  shape = { buckets, "heads" },
  doc = "bias of a bucket of distances: weight of the embedding of that name",
  source = "Raffel et al., section 2.1",
  init = pe.init { normal = 512 ^ -0.5, doc = "normal, standard deviation d_model^-0.5, here that of d_model = 512" },
}

-- Bucket exact + k begins at this distance: found here, so that no rounding of a logarithm decides.
local function begins(k) return math.ceil(exact * (farthest / exact) ^ (k / (each - exact)) - 1e-9) end

local function bucket(d)
  local n = pe.floor(causal and pe.max(-d, 0) or pe.abs(d))
  local place = pe.min(n, exact)
  for k = 1, each - exact - 1 do place = place + pe.where(n, begins(k), 0, 1) end
  return causal and place or place + pe.where(0, d, each, 0)
end

return pe.encoding {
  name = "t5",
  doc = "learned biases of buckets of distances (T5, Raffel et al., section 2.1)",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  scale = 1,
  heads = heads,
  bias = function(delta, head) return table(bucket(delta.t), head) end,
  models = {
    { "T5-small (encoder)", "FLAN-T5-small (encoder)", heads = 8 },
    { "T5-base (encoder)", "T5 v1.1 base (encoder)", "FLAN-T5-base (encoder)", heads = 12 },
    { "T5-base (decoder)", heads = 12, causal = true },
  },
}
