-- error: input 'a' goes with
local pe = require "pegen"
local a = pe.input { name = "a", shape = { 4 }, doc = "x" }
return pe.encoding { -- HERE
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = { { span = { 0, 8 }, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum,
    phase = function(_, i) return a(i) end } },
}
