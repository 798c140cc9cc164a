-- error: is not finite in term 0
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { 4 }, doc = "numbers" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(delta)
    return pe.sum(4, function(k) return delta.t * (1 / k) end)
  end,
}
