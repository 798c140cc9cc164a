-- error: math.tan takes numbers, and an expression has no value yet; no word of the vocabulary is the same of it
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(d)
    return math.tan(d.t) -- HERE
  end,
}
