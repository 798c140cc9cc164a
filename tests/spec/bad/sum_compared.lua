-- error: an expression has no value yet and cannot be compared
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { 4 }, doc = "numbers" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(delta)
    return pe.sum(4, function(k) return k < 2 and w(k) or 0 end) -- HERE
  end,
}
