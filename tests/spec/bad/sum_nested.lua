-- error: the indices of two pe.sum together
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { 4 }, doc = "numbers" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(delta)
    return pe.sum(4, function(k)
      return pe.sum(3, function(j) return w(j) * k end) -- HERE
    end)
  end,
}
