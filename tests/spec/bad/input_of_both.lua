-- error: input 'lean' is read by the pe.polynomial and by the score, which take rows of their own; two inputs were expected
local pe = require "pegen"
local lean = pe.input { name = "lean", shape = {}, doc = "of the query" }
return pe.encoding {
  name = "x", axes = { "t" }, head_dim = 8,
  bias = pe.polynomial { degree = 1, value = function(delta) return lean() * delta.t end },
  score = function(s)
    return s * lean() -- HERE
  end,
}
