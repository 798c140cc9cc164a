-- RePo: RoPE at positions that the model assigns itself, real numbers of each token and head.
-- "RePo: Language Models with Context Re-Positioning" (Li et al., arXiv:2512.14391):
--   score(i, j) = <R(z_i) q_i, R(z_j) k_j>,   z = f(h),   R(z) = RoPE's rotation at position z,
-- where f is a light network of a token's state h in each head. Its numbers are the input `place`; they have gradients.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base", { range = { 10.0, 1e7 } })
local layout = pe.option("layout", "split", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })

if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end

local place = pe.input {
  name = "place", shape = {}, doc = "where the model puts the token in this head",
  source = "RePo, Li et al.", test_scale = 100,
}

return pe.encoding {
  name = "repo",
  doc = "RoPE at positions that the model assigns (RePo, Li et al.)",
  axes = { "t" },
  head_dim = D,
  span = { 0, D - D % 2 },
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  phase = function(_, i) return place() * base ^ (-2 * i / (D - D % 2)) end,
  position = function() return 1 end, -- tokens are where their places are
}
