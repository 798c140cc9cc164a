-- Sums in a bias: the index in arithmetic, in powers and as an element's.
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "heads", 8 }, doc = "numbers" }
return pe.encoding {
  name = "sums",
  axes = { "t" },
  head_dim = 16,
  heads = 2,
  bias = function(delta, head)
    local waves = pe.sum(8, function(k) return w(head, k) * pe.cos(delta.t * 100 ^ (-k / 8)) end)
    return waves + pe.sum(3, function(k) return pe.where(k, 1, delta.t, k * waves) end) + pe.sum(1, function(k) return k end)
  end,
}
