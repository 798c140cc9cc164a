-- RoPE++: a second group of heads for the imaginary part of what RoPE's scores are the real part of.
-- "Beyond Real: Imaginary Extension of Rotary Position Embeddings for Long-Context LLMs" (Liu et al.): with pairs as
-- complex numbers, q_t and k_s turned by theta_j = base^(-2j/D), a head's scores are
--   Re sum q conj(k) e^(i theta (t - s)), and those of its second head Im of the same sum (the paper writes -Im of the
-- conjugate), sines in place of cosines,
-- which are the real scores of a q that is turned by another -pi/2 before: k, v and the cache are shared.
-- The second axis says so: `imaginary` is 1 in the positions of the second heads' q, 0 of the first ones' and of k. q
-- is read twice, by a call with k and by one without; the paper's RoPE++_EH has half the heads of q, RoPE++_EC twice as
-- many scores.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base")
local layout = pe.option("layout", "split", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })

if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end
local n = D - D % 2

return pe.encoding {
  name = "rope_plus",
  doc = "RoPE whose second heads score by the imaginary part (RoPE++, Liu et al.)",
  axes = { "t", "imaginary" },
  head_dim = D,
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i) return axis == "t" and base ^ (-2 * i / n) or -pe.pi / 2 end,
}
