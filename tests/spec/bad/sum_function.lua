-- error: pe.sum(n, f): f is 
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { 4 }, doc = "numbers" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(delta)
    return pe.sum(4, w) -- HERE
  end,
}
