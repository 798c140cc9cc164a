-- RoPE: rotary position embedding of sequences.
-- "RoFormer: Enhanced Transformer with Rotary Position Embedding" (Su et al.), eq. 14-15:
--   y0 = cos(a) x0 - sin(a) x1, y1 = sin(a) x0 + cos(a) x1, a = r * base^(-2i/n), n the rotary span.
-- Layout: "interleaved" pairs (2j, 2j+1) are the paper's and the default; "split" pairs (j, j + n/2) are
-- those of GPT-NeoX, LLaMA and Hugging Face transformers.
-- Scaling to longer contexts as in Hugging Face transformers, modeling_rope_utils.py:
--   linear   frequencies divided by `factor` (Chen et al., "Extending Context Window ... via Positional Interpolation")
--   ntk      base * factor^(n / (n - 2)); the "dynamic" rule at length L is this with the factor
--            factor * L / max_position - (factor - 1)
--   yarn     "YaRN: Efficient Context Window Extension of Large Language Models" (Peng et al.), section 3.2-3.4
--   llama3   the frequency bands of Llama 3.1
--   factors  divides the frequency of each pair by a number of its own: one list for short texts, one for long ones
--            ("LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens" (Ding et al.), section 3.2; Phi-3)
-- `proportional` is Gemma 4's: base^(-2i/head_dim), and of the pairs of the whole head the first rotary_dim / 2 turn.
-- DeepSeek-V4 turns the last channels of a head: rotary_from.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base", { range = { 10.0, 1e7 } })
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })
local rotary = pe.option("rotary_dim", 0, "channels that turn, from rotary_from on; 0: all")
local from = pe.option("rotary_from", 0, "the first channel that turns", { needs = { rotary_dim = true } })
local proportional = pe.option("proportional", false, "rotary_dim / 2 of the whole head's pairs turn, as fast as there",
  { needs = { rotary_dim = true, rotary_from = 0, scaling = { "none", "linear" } } })
local factors = pe.option("factors", { 1.0 }, "divisors of frequencies, one a pair or one of all (longrope)")
local scaling = pe.option("scaling", "none", "rule for longer contexts; others: rope_frequencies",
  { "none", "linear", "ntk", "yarn", "llama3", needs = { factor = true } })
local factor = pe.option("factor", 1.0, "linear, ntk, yarn, llama3: context length over the trained one",
  { needs = { scaling = { "linear", "ntk", "yarn", "llama3" } } })
local trained = pe.option("original_max_position", 8192, "yarn, llama3: trained context length in tokens",
  { needs = { scaling = { "yarn", "llama3" } } })
local of_yarn, of_llama3 = { needs = { scaling = "yarn" } }, { needs = { scaling = "llama3" } }
local fast = pe.option("beta_fast", 32.0, "yarn: turns in the trained context above which nothing is scaled", of_yarn)
local slow = pe.option("beta_slow", 1.0, "yarn: turns in the trained context below which all is scaled", of_yarn)
local truncate = pe.option("truncate", true, "yarn: round the blended range to whole pairs", of_yarn)
local attention = pe.option("attention_factor", 0.0, "factor of encoded channels; 0: yarn's 0.1 ln(factor) + 1, else 1")
local low = pe.option("low_freq_factor", 1.0, "llama3: trained length over the longest wavelength that is blended",
  of_llama3)
local high = pe.option("high_freq_factor", 4.0, "llama3: trained length over the shortest wavelength that is blended",
  of_llama3)

if rotary < 0 or rotary % 2 == 1 or rotary > D then
  error("option 'rotary_dim' is " .. rotary .. ", an even number up to head_dim was expected")
end
if from < 0 or from + rotary > D then
  error("option 'rotary_from' is " .. from .. ", 0 to " .. D - rotary .. " was expected")
end
if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end
if factor < 1 then error("option 'factor' is " .. factor .. ", a number of at least 1 was expected") end
if trained < 1 then error("option 'original_max_position' is " .. trained .. ", a positive number was expected") end
if attention < 0 then error("option 'attention_factor' is " .. attention .. ", no negative number was expected") end
local turning = rotary > 0 and rotary or D - D % 2
if #factors ~= 1 and #factors ~= turning // 2 then
  error("option 'factors' has " .. #factors .. " numbers, 1 or one of each of the " .. turning // 2 ..
    " pairs was expected")
end
for _, divisor in ipairs(factors) do
  if divisor <= 0 then error("option 'factors' has " .. divisor .. ", positive numbers were expected") end
end
local n = proportional and D or turning -- of the exponents

-- Radians per token of pair i.
local rules = {}

function rules.none(i) return base ^ (-2 * i / n) / (factors[i + 1] or factors[1]) end

function rules.linear(i) return rules.none(i) / factor end

function rules.ntk(i)
  if n <= 2 then error "ntk scaling needs a rotary span of at least 4" end
  return (base * factor ^ (n / (n - 2))) ^ (-2 * i / n)
end

-- The pair that makes `turns` turns in the trained context (YaRN, eq. 17 solved for the dimension).
local function pair_of(turns) return n * math.log(trained / (turns * 2 * pe.pi)) / (2 * math.log(base)) end

function rules.yarn(i)
  local from, to = pair_of(fast), pair_of(slow)
  if truncate then from, to = math.floor(from), math.ceil(to) end
  from, to = math.max(from, 0), math.min(to, n - 1)
  if from == to then to = to + 0.001 end
  local scaled = math.min(math.max((i - from) / (to - from), 0), 1) -- share of the scaled frequency
  return rules.none(i) * (scaled / factor + 1 - scaled)
end

function rules.llama3(i)
  local frequency = rules.none(i)
  local turns = trained * frequency / (2 * pe.pi) -- in the trained context
  if turns < low then return frequency / factor end
  if turns > high then return frequency end
  local smooth = (turns - low) / (high - low)
  return (1 - smooth) * frequency / factor + smooth * frequency
end

local amplitude = attention > 0 and attention or scaling == "yarn" and 0.1 * math.log(factor) + 1 or 1

-- Channel of component c of pair i, where pairs are those of the whole head.
local function of_whole_head(c, i) return layout == "split" and i + c * (D // 2) or 2 * i + c end

return pe.encoding {
  name = "rope",
  doc = "rotary position embedding (Su et al., RoFormer, eq. 14-15)",
  axes = { "t" },
  head_dim = D,
  block = pe.plane(),
  span = { from, turning },
  layout = proportional and of_whole_head or layout,
  generators = pe.turn "e12",
  phase = function(_, i) return rules[scaling](i) end,
  amplitude = amplitude,
  models = {
    { "RoFormer", head_dim = 64 },
    { "Llama 1", "Llama 2", layout = "split", head_dim = 128 },
    { "Code Llama", layout = "split", head_dim = 128, base = 1000000 },
    { "Llama 3", layout = "split", head_dim = 128, base = 500000 },
    {
      "Llama 3.1", "Llama 3.3", layout = "split", head_dim = 128, base = 500000, scaling = "llama3", factor = 8,
      original_max_position = 8192,
    },
    {
      "Llama 3.2 1B", layout = "split", head_dim = 64, base = 500000, scaling = "llama3", factor = 32,
      original_max_position = 8192,
    },
    {
      "Llama 3.2 3B", layout = "split", head_dim = 128, base = 500000, scaling = "llama3", factor = 32,
      original_max_position = 8192,
    },
    {
      "Llama 4 Scout", head_dim = 128, base = 500000, scaling = "llama3", factor = 16, high_freq_factor = 1,
      original_max_position = 8192,
    },
    { "Mistral 7B v0.1", layout = "split", head_dim = 128 },
    { "Mistral 7B v0.2", "Mistral 7B v0.3", "Mixtral 8x7B", layout = "split", head_dim = 128, base = 1000000 },
    { "Qwen2", "Qwen2.5", "Qwen3", layout = "split", head_dim = 128, base = 1000000 },
    {
      "Gemma", "Gemma 2", "Gemma 3 (layers of local attention)", "Gemma 3n (layers of local attention)",
      layout = "split", head_dim = 256,
    },
    { "Gemma 3n (layers of global attention)", layout = "split", head_dim = 256, base = 1000000 },
    {
      "Gemma 3 4B, 12B (layers of global attention)", layout = "split", head_dim = 256, base = 1000000,
      scaling = "linear", factor = 8,
    },
    { "Phi-2", layout = "split", head_dim = 80, rotary_dim = 32 },
    { "Phi-3-mini-4k", layout = "split", head_dim = 96 },
    { "Phi-4", layout = "split", head_dim = 128, base = 250000 },
    { "Qwen3-Next", layout = "split", head_dim = 256, rotary_dim = 64, base = 10000000 },
    { "MiniMax-M2", layout = "split", head_dim = 128, rotary_dim = 64, base = 5000000 },
    { "GLM-4 (0414)", head_dim = 128, rotary_dim = 64 },
    { "GLM-4.5", layout = "split", head_dim = 128, rotary_dim = 64, base = 1000000 },
    { "ERNIE 4.5", head_dim = 128, base = 500000 },
    { "GPT-J 6B", head_dim = 256, rotary_dim = 64 },
    { "GPT-NeoX 20B", layout = "split", head_dim = 96, rotary_dim = 24 },
    { "Pythia 6.9B", layout = "split", head_dim = 128, rotary_dim = 32 },
    { "SmolLM3 3B", layout = "split", head_dim = 128, base = 2000000 },
    { "StableLM 3B", layout = "split", head_dim = 80, rotary_dim = 20 },
    { "Falcon 7B", layout = "split", head_dim = 64 },
    { "Helium 1", head_dim = 128, base = 100000 },
    { "LFM2 1.2B", layout = "split", head_dim = 64, base = 1000000 },
    {
      "Apertus 8B", layout = "split", head_dim = 128, base = 12000000, scaling = "llama3", factor = 8,
      original_max_position = 8192,
    },
    {
      "CWM", layout = "split", head_dim = 128, base = 1000000, scaling = "llama3", factor = 16,
      original_max_position = 8192,
    },
    { "nomic-embed-text v1.5", layout = "split", head_dim = 64, base = 1000 },
    { "jina-embeddings v3", layout = "split", head_dim = 64, base = 20000 },
    {
      "OLMo 2", "OLMo 3 (layers of local attention)", layout = "split", head_dim = 128, base = 500000,
    },
    { "ESM-2 650M", layout = "split", head_dim = 64 },
    { "ModernBERT (layers of global attention)", layout = "split", head_dim = 64, base = 160000 },
    { "ModernBERT (layers of local attention)", layout = "split", head_dim = 64 },
    {
      "gpt-oss", layout = "split", head_dim = 64, base = 150000, scaling = "yarn", factor = 32, truncate = false,
      original_max_position = 4096,
    },
    {
      "Gemma 4 (layers of global attention, proportional)", layout = "split", head_dim = 512, base = 1000000,
      rotary_dim = 128, proportional = true,
    },
    { "Grok-1", layout = "split", head_dim = 128 },
    { "DeepSeek-V4 (layers of windows alone)", head_dim = 512, rotary_dim = 64, rotary_from = 448 },
    {
      "DeepSeek-V3 (the 64 channels that turn)", "DeepSeek-R1 (the 64 channels that turn)",
      "DeepSeek-V3.2 (the 64 channels that turn)", head_dim = 64, scaling = "yarn", factor = 40,
      original_max_position = 4096, attention_factor = 1,
    },
  },
}
