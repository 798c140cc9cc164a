-- error: 'init' of operand 'w' is nil at (h, 0, 0), a finite number was expected
local pe = require "pegen"
local function first() end -- HERE
local w = pe.learned {
  name = "w", shape = { "axes", "heads", "blocks" }, doc = "speeds", init = first,
}
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 8, heads = 2, block = pe.plane(), generators = pe.turn "e12",
  combine = pe.sum, phase = w,
}
