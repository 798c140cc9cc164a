local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
  position = function(axis, r)
    local x = pe.abs(r) ^ 0.5 + 2 ^ -pe.max(r, 0, 1) - r // 3 + r % 2
    return pe.where(r, 1, pe.sin(x), pe.cos(-x)) / (1 + r ^ 2) + pe.log(1 + pe.exp(pe.floor(r))) ^ 1.5
  end,
}
