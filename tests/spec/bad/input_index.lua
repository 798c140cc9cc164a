-- error: input 'a': the index is 3, 0 to 2 was expected
local pe = require "pegen"
local a = pe.input { name = "a", shape = { 3 }, doc = "one" }
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  bias = pe.polynomial {
    degree = 1,
    terms = 4,
    value = function(delta, l)
      return a(l) * delta.h -- HERE
    end,
  },
}
