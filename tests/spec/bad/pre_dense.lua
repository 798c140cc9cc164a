-- error: 'pre' goes with blocks of blades and no 'basis'
local pe = require "pegen"
local skew = pe.learned.skew(4, { name = "skew", shape = { "axes", "blocks" }, doc = "matrices", from = "upper" })
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.dense(4),
  generators = skew,
  phase = function(_, i) return 2 ^ -i end,
  pre = pe.tanh, -- HERE
}
