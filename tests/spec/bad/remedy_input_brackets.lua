-- error: input 'a' is read with parentheses: a(i)
local pe = require "pegen"
local a = pe.input { name = "a", shape = { 2 }, doc = "curvature" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = pe.polynomial {
    degree = 1,
    value = function(d) return a[0] * d.t end, -- HERE
  },
}
