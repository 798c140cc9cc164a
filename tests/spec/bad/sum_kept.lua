-- error: the index of a pe.sum is read outside of it
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { 4 }, doc = "numbers" }
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(delta)
    local kept
    local sum = pe.sum(4, function(k) kept = k return w(k) end)
    return sum + kept
  end,
}
