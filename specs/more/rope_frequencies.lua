-- RoPE with the model's own frequencies: one kernel for every rule that makes them, also for rules that depend on the
-- length of the text or on the layer (dynamic NTK, longrope, Gemma's layers of local and of global attention).
-- inv_freq is what transformers calls so, modeling_rope_utils.py: radians per token of each pair; Meta's code has it as
-- freqs. What a rule does to the channels beside (attention_factor of yarn and longrope) is the option of that name.
-- precision=float32 multiplies position and frequency as these codes do, in float32: the model's outputs at position
-- 10^5 are then its own to 2^-20, where exact phases differ from them by 1e-2.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local layout = pe.option("layout", "split", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })
local rotary = pe.option("rotary_dim", 0, "channels that turn, from rotary_from on; 0: all")
local from = pe.option("rotary_from", 0, "the first channel that turns", { needs = { rotary_dim = true } })
local amplitude = pe.option("attention_factor", 1.0, "factor of the encoded channels (yarn, longrope)")
local precision = pe.option("precision", "exact", "product of position and frequency", { "exact", "float32" })

if rotary < 0 or rotary % 2 == 1 or rotary > D then
  error("option 'rotary_dim' is " .. rotary .. ", an even number up to head_dim was expected")
end
if from < 0 or from + rotary > D then
  error("option 'rotary_from' is " .. from .. ", 0 to " .. D - rotary .. " was expected")
end

local inv_freq = pe.learned {
  name = "inv_freq",
  shape = { "blocks" },
  doc = "frequency of a pair of channels",
  units = "radians per token",
  source = "Su et al., eq. 15; transformers, modeling_rope_utils.py",
  init = function(i) return 10000.0 ^ (-2 * i / (rotary > 0 and rotary or D)) end,
}

return pe.encoding {
  name = "rope_frequencies",
  doc = "rotary position embedding with the model's own frequencies (inv_freq of transformers)",
  axes = { "t" },
  head_dim = D,
  block = pe.plane(),
  span = { from, rotary > 0 and rotary or D - D % 2 },
  layout = layout,
  generators = pe.turn "e12",
  phase = function(_, i) return inv_freq(i) end,
  precision = precision .. " phases",
  amplitude = amplitude,
  models = {
    { "Phi-3-mini-128k (longrope)", head_dim = 96, attention_factor = 1.1902380714238083, precision = "float32" },
    { "Llama 2 with dynamic NTK", head_dim = 128, precision = "float32" },
    { "Gemma 3 (either kind of layer)", head_dim = 256, precision = "float32" },
  },
}
