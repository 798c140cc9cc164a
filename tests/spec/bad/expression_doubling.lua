-- error: an expression may have
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
  position = function(_, r)
    local x = r
    for _ = 1, 100 do
      x = x * x -- HERE
    end
    return x
  end,
}
