-- PoPE: what a channel holds is a length, where its token stands an angle.
-- "Decoupling the "What" and "Where" With Polar Coordinate Positional Embeddings" (Gopalakrishnan et al.):
--   q~_c = softplus(q_c) (cos t theta_c, sin t theta_c),   k~_c = softplus(k_c) (cos(s theta_c + delta_c), sin(...)),
--   theta_c = base^(-c/d), c = 0 ... d - 1, delta learned of each head, kept in [-2 pi, 0] as PoPE-pytorch does.
-- Each of the d channels becomes a pair, so that rows of 2 d are written. What is read of a token is the input
-- `content` (q or k, float32); the rows that are turned are (1, 0) in each pair, one row for all tokens by strides of
-- 0. Positions are (t, 0) of queries and (t, 1) of keys, which have delta; q and k go in calls of their own.
local pe = require "pegen"

local d = pe.option("channels", 64, "channels of a head, d; rows that are written have 2 d")
local heads = pe.option("heads", 1, "heads with a delta of their own; 1: all heads share it")
local base = pe.option("base", 10000.0, "frequency base")
local layout = pe.option("layout", "interleaved", "where a channel's pair lies: (2c, 2c+1) or (c, c + d)",
  { "interleaved", "split" })

local content = pe.input {
  name = "content", shape = { d }, doc = "the token's row of q or k, whose softplus is the length of each pair",
  source = "Gopalakrishnan et al.", test_scale = 3,
}
local delta = pe.learned {
  name = "delta", shape = { "heads", "blocks" }, doc = "phase of the keys' pairs; beyond -2 pi or 0 it counts as that",
  units = "radians", source = "Gopalakrishnan et al.", init = pe.init { value = 0 }, test_scale = 6,
}

return pe.encoding {
  name = "pope",
  doc = "polar coordinates: lengths of what channels hold, angles of where tokens are (PoPE, Gopalakrishnan et al.)",
  axes = { "t", "is_key" },
  head_dim = 2 * d,
  heads = heads,
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(axis, i, head)
    if axis == "t" then return base ^ (-i / d) end
    return pe.min(pe.max(delta(head, i), -2 * pe.pi), 0)
  end,
  amplitude = function(_, i) return pe.softplus(content(i)) end,
}
