-- error: pe.sum(n, f): n is 2.5, a whole number from 1 to 4096 was expected
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { 4 }, doc = "numbers" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(delta)
    return pe.sum(2.5, function(k) return w(k) end) -- HERE
  end,
}
