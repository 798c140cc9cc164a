-- error: field 'init' of pe.learned is a table, a text, a number, a function or pe.init {...} was expected
local pe = require "pegen"

local w = pe.learned {
  name = "w", shape = { "axes", "heads", "blocks" }, doc = "speeds", init = { 3 }, -- HERE
}
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 8, heads = 2, block = pe.plane(), generators = pe.turn "e12",
  combine = pe.sum, phase = w,
}
