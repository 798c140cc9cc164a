-- Rotation by cosines and sines that the caller computes, as apply_rotary_pos_emb(q, k, cos, sin) of transformers and
-- vLLM's rotary kernels do:
--   y_a = x_a cos_p - x_b sin_p,  y_b = x_b cos_p + x_a sin_p  for the pair p of channels (a, b).
-- So that outputs are a model's own to the bit, products = "rounded" rounds as operators of frameworks do: cosines,
-- sines and each product to the rows' type, then their sum. products = "float32" is of models that rotate in float32.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local n = pe.option("rotary_dim", 0, "channels that turn, from the first; 0: all")
local layout = pe.option("layout", "split", "pairs (j, j + n/2) or (2j, 2j+1)", { "split", "interleaved" })
local products = pe.option("products", "rounded", "rounded to rows' type or to float32, or fused", { "rounded",
  "float32", "fused" })

if n < 0 or n % 2 == 1 or n > D then
  error("option 'rotary_dim' is " .. n .. ", an even number up to head_dim was expected")
end
if n == 0 then n = D - D % 2 end
local cosine = pe.input { name = "cos", shape = { n // 2 }, doc = "cosine of each pair's angle, times any factor" }
local sine = pe.input { name = "sin", shape = { n // 2 }, doc = "sine of each pair's angle, times the same factor" }

return pe.encoding {
  name = "cos_sin",
  doc = "Rotation by cosines and sines of the caller's",
  axes = { "t" },
  head_dim = D,
  span = { 0, n },
  block = pe.linear(2),
  layout = layout,
  products = products,
  matrix = function(_, p)
    local c, s = cosine(p), sine(p)
    return { { c, -s }, { s, c } }
  end,
}
