-- xPos: RoPE whose queries grow and whose keys fall with the position, so that scores decay with the distance.
-- "A Length-Extrapolatable Transformer" (Sun et al.), section 3.2 and algorithm 1:
--   q~ = R(t theta_i) q zeta_i^(t / scale_base),   k~ = R(t theta_i) k zeta_i^(-t / scale_base),
--   theta_i = base^(-2i/n),   zeta_i = (2i/n + gamma) / (1 + gamma),   gamma 0.4, scale_base 512.
-- Scores of a causal model know the distance alone, and the factor zeta^((t - s) / scale_base) is at most 1. Factors of
-- rows grow with the distance from `origin`, rows of float16 overflow some 4400 tokens from it (see `pegen explain`).
-- With the middle of the longest text for an origin they reach twice as far; scores are the same for any origin.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base")
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })
local rotary = pe.option("rotary_dim", 0, "channels that turn, from the first; 0: all")
local gamma = pe.option("gamma", 0.4, "how little the slowest decay: zeta of pair 0 is gamma / (1 + gamma)")
local origin = pe.option("origin", 0.0, "position at which factors are 1")
local scale_base = pe.option("scale_base", 512.0, "tokens in which a pair decays by its zeta")

if rotary < 0 or rotary % 2 == 1 or rotary > D then
  error("option 'rotary_dim' is " .. rotary .. ", an even number up to head_dim was expected")
end
if base <= 0 or gamma <= 0 or scale_base <= 0 then
  error "options 'base', 'gamma' and 'scale_base' are to be positive numbers"
end
local n = rotary > 0 and rotary or D - D % 2

local function decay(i) return math.log((2 * i / n + gamma) / (1 + gamma)) / scale_base end

return pe.encoding {
  name = "xpos",
  doc = "RoPE with a decay of scores by distance (xPos, Sun et al., section 3.2)",
  axes = { "t" },
  head_dim = D,
  span = { 0, n },
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  phase = function(_, i) return base ^ (-2 * i / n) end,
  amplitude = {
    q = function(r, i) return pe.exp(decay(i) * (r.t - origin)) end,
    k = function(r, i) return pe.exp(-decay(i) * (r.t - origin)) end,
  },
}
