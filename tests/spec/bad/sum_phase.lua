-- error: pe.sum(n, f) stands in a bias or a score
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i)
    return pe.sum(4, function(k) return k / (i + 1) end) -- HERE
  end,
}
