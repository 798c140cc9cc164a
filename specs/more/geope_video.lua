-- Video: time by RoPE's planes, space by GeoPE's 3-vectors, side by side in one head.
-- "RoFormer" (Su et al.), section 3.4.2, eq. 34, on the first `time_dim` channels:
--   pair i turns by t time[h, i], at first time[h, i] = time_base^(-2i/n), n = time_dim;
-- "GeoPE: A Unified Geometric Positional Embedding for Structured Tensors", section 3.2, eq. 3-4, on the others:
--   triple i turns by exp of the mean of y space[0, h, i] j and x space[1, h, i] k, at first both
--   space[a, h, i] = base^(2i/m), m the channels of space (exponent_sign = -1: base^(-2i/m), as RoPE decays).
-- The papers' frequencies are constants; here they are learned, each head's own where `heads` says so, and begin as
-- the papers'. A score is the sum of what time's channels and space's give: the former's is a function of t - t' alone.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local heads = pe.option("heads", 1, "heads with frequencies of their own; 1: all heads share them")
local time_dim = pe.option("time_dim", 0, "channels of time, from the first; 0: a quarter")
local time_base = pe.option("time_base", 10000.0, "frequency base of time")
local base = pe.option("base", 100.0, "frequency base lambda of space")
local sign = pe.option("exponent_sign", 1, "+1: space's frequencies grow, as printed; -1: they decay", { 1, -1 })
local layout = pe.option("layout", "interleaved", "neighbours (3i, 3i+1, 3i+2) or thirds, and halves, of a part", {
  "interleaved", "split" })

local n = time_dim > 0 and time_dim or D // 8 * 2
if n < 2 or n % 2 == 1 or n > D - 3 then
  error("option 'time_dim' is " .. n .. ", an even number from 2 to head_dim - 3 was expected")
end
local m = D - n

local time = pe.learned {
  name = "time",
  shape = { "heads", "blocks" },
  doc = "how fast a pair of channels turns with t",
  units = "radians per unit of position",
  source = "Su et al., section 3.2.2",
  init = pe.init { value = function(_, i) return time_base ^ (-2 * i / n) end, doc = "time_base^(-2i/n), as RoPE's" },
  test_scale = 1.0,
}

local space = pe.learned {
  name = "space",
  shape = { 2, "heads", "blocks" },
  doc = "how fast a triple of channels turns with h, with w",
  units = "radians per unit of position",
  source = "GeoPE, section 3.1",
  init = pe.init { value = function(_, _, i) return base ^ (sign * 2 * i / m) end, doc = "base^(2i/m), as GeoPE's" },
  test_scale = 1.0,
}

return pe.encoding {
  name = "geope_video",
  doc = "time by RoPE's planes, space by GeoPE's 3-vectors (Su et al.; GeoPE, eq. 3-4)",
  axes = { "t", "h", "w" },
  head_dim = D,
  heads = heads,
  parts = {
    {
      span = { 0, n }, axes = { "t" }, block = pe.plane(), layout = layout, generators = pe.turn "e12",
      phase = function(_, i, head) return time(head, i) end,
    },
    {
      span = { n, m }, axes = { "h", "w" }, block = pe.vector(3), layout = layout, combine = pe.mean,
      generators = { h = pe.quaternion "j", w = pe.quaternion "k" },
      phase = function(axis, i, head) return space(axis == "h" and 0 or 1, head, i) end,
    },
  },
}
