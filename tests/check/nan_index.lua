-- Biases read from tables at places that are no numbers for half of the displacements.
local pe = require "pegen"
local plain = pe.learned { name = "plain", shape = { 8 }, doc = "by the logarithm of the displacement" }
local pairs_of = pe.learned { name = "pairs_of", shape = { 4, 5, "heads" }, doc = "by a root and a remainder" }

return pe.encoding {
  name = "nan_index",
  doc = "a bias by logarithm, root and remainder of a displacement",
  axes = { "x", "y" },
  head_dim = 8,
  heads = 2,
  bias = function(delta, head)
    return plain(pe.log(delta.x)) + pairs_of(pe.sqrt(delta.y), 1 % delta.x, head)
  end,
}
