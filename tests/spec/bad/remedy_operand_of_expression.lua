-- error: arithmetic on operand 'w', a whole tensor; an element of it is w(head)
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "heads" }, doc = "weights" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  heads = 4,
  bias = function(d, head)
    return pe.norm(d) * pe.exp(w) -- HERE
  end,
}
