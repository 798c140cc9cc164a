-- A temperature of queries that grows with the position, of layers without positions otherwise (Llama 4, every fourth).
-- Meta's code (llama-models, llama4/model.py, attn_temperature_tuning) and transformers (Llama4TextAttention):
--   q~ = q (1 + attn_scale log(floor((t + 1) / floor_scale) + 1)),   k~ = k,   t from 0.
local pe = require "pegen"

local D = pe.option("head_dim", 128, "channels per head")
local strength = pe.option("attn_scale", 0.1, "factor of the logarithm")
local floor_scale = pe.option("floor_scale", 8192.0, "tokens of a step")

if strength < 0 or floor_scale <= 0 then
  error "options 'attn_scale' and 'floor_scale' are to be positive numbers"
end

return pe.encoding {
  name = "position_temperature",
  doc = "queries scaled by the logarithm of their position (Llama 4's layers without RoPE)",
  axes = { "t" },
  head_dim = D,
  span = { 0, D - D % 2 },
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = 0,
  amplitude = {
    q = function(r) return 1 + strength * pe.log1p(pe.floor((pe.max(r.t, 0) + 1) / floor_scale)) end,
    k = 1,
  },
  models = {
    { "Llama 4 Scout (layers without RoPE)", "Llama 4 Maverick (layers without RoPE)", head_dim = 128 },
  },
}
