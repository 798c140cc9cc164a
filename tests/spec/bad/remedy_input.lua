-- error: arithmetic on input 'a', a whole tensor; an element of the token's row is a()
local pe = require "pegen"
local a = pe.input { name = "a", shape = {}, doc = "curvature" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = pe.polynomial {
    degree = 1,
    value = function(d) return -a * d.t end, -- HERE
  },
}
