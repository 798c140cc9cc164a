-- error: an angle depends on inputs; expected nothing but
local pe = require "pegen"
local m = pe.input { name = "m", shape = {}, doc = "m" }
return pe.encoding { -- HERE
  name = "bad",
  role = "pairwise",
  axes = { "t" },
  head_dim = 8,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return 1 + m() end,
  bias = function(delta) return -pe.abs(delta.t) end,
}
