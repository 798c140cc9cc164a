-- error: operand 'w' is read with parentheses: w(head, k)
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "heads", 2 }, doc = "weights" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  heads = 4,
  bias = function(d, head)
    return -w[head] * pe.norm(d) -- HERE
  end,
}
