-- error: pe.init says nothing; one of these was expected: value, uniform, normal, direction
local pe = require "pegen"

local w = pe.learned {
  name = "w", shape = { "axes", "heads", "blocks" }, doc = "speeds", init = pe.init { doc = "x" }, -- HERE
}
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 8, heads = 2, block = pe.plane(), generators = pe.turn "e12",
  combine = pe.sum, phase = w,
}
