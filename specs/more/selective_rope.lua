-- Selective RoPE: planes turn by sums of angles that the tokens choose themselves ("Selective Rotary Position
-- Embedding", Movahedi et al.):
--   q~_t = R(phi_t) q_t,   k~_t = R(phi_t) k_t,   phi_t = sum over s <= t of omega(x_s),
-- so that a score knows what was chosen between its two tokens, phi_t - phi_s, and no position. omega is the model's
-- own (a projection of the token, a convolution, a gate). The input `angle` is the sum over tokens: `pegen_scan_tokens`
-- (Python: pegen_kernels.scan) with a period of 2 pi, in float64 less whole turns, and its gradient. RoPE's own angles,
-- t theta_i, may be among them.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local layout = pe.option("layout", "interleaved", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })
local rotary = pe.option("rotary_dim", 0, "channels that turn, from the first; 0: all")

if rotary < 0 or rotary % 2 == 1 or rotary > D then
  error("option 'rotary_dim' is " .. rotary .. ", an even number up to head_dim was expected")
end
local n = rotary > 0 and rotary or D - D % 2

local angle = pe.input {
  name = "angle", shape = { n // 2 }, doc = "how far each pair has turned: the sum of what tokens chose up to this one",
  units = "radians", source = "Selective Rotary Position Embedding, Movahedi et al.", test_scale = 100,
}

return pe.encoding {
  name = "selective_rope",
  doc = "RoPE by angles that tokens choose (Selective RoPE, Movahedi et al.)",
  axes = { "t" },
  head_dim = D,
  span = { 0, n },
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  phase = function(_, i) return angle(i) end,
  position = function() return 1 end, -- tokens are where their angles are
}
