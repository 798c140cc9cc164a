-- Logarithms that are no softplus: of a distance, and of exponentials that are not of minus a distance.
local pe = require "pegen"

return pe.encoding {
  name = "logarithm",
  axes = { "t" },
  head_dim = 16,
  heads = 2,
  bias = function(delta, head)
    local x = pe.norm(delta)
    return -pe.log1p(x * 3) - head * (pe.log1p(pe.exp(x / 8)) + pe.log1p(pe.exp(-(x + delta.t) / 4)))
  end,
}
