-- Dual chunk attention: RoPE of texts longer than in training, whose distances are those of training.
-- "Training-Free Long-Context Scaling of Large Language Models" (An et al., ChunkLlama): with chunks of s
-- tokens and a trained length of c, query i and key j turn by the distance
--   i mod s - j mod s                      in one chunk,
--   min(i mod s + s, c - 1) - j mod s      in neighbouring chunks,
--   c - 1 - j mod s                        in chunks further apart.
-- These are differences of coordinates, one for each case, beside the number of the chunk. Positions of queries are
--   (floor(i / s), i mod s, min(i mod s + s, c - 1), c - 1),
-- and `k_positions` (floor(j / s), j mod s, j mod s, j mod s). Calls are causal.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 10000.0, "frequency base", { range = { 10.0, 1e7 } })
local layout = pe.option("layout", "split", "pairs (2j, 2j+1) or (j, j + n/2)", { "interleaved", "split" })

if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end

return pe.encoding {
  name = "dual_chunk",
  doc = "attention by RoPE whose distances stay those of training (dual chunk attention, An et al.)",
  role = "pairwise",
  axes = { "chunk", "same", "next", "far" },
  head_dim = D,
  span = { 0, D - D % 2 },
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i) return axis == "chunk" and 0 or base ^ (-2 * i / (D - D % 2)) end,
  position = function(r)
    return {
      0,
      pe.where(-0.5, r.chunk, r.same, 0),
      pe.where(-0.5, r.chunk, 0, pe.where(-1.5, r.chunk, r.next, 0)),
      pe.where(-1.5, r.chunk, 0, r.far),
    }
  end,
  models = {
    { "ChunkLlama", head_dim = 128 },
  },
}
