local pe = require "pegen"
-- 1 in block 0 is still a factor.
local f = pe.learned { name = "f", shape = { "axes", "heads", "blocks" }, doc = "d" }
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  heads = 3,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(a, i, head) return f(a, head, i) * 10 ^ -i + 0 * i end,
}
