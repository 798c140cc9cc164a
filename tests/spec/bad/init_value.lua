-- error: 'init' of operand 'w' is inf at (w, 1, 3), a finite number was expected
local pe = require "pegen"
local function first(axis, head, i) return axis == "w" and head == 1 and i == 3 and 1 / 0 or 1 end -- HERE
local w = pe.learned {
  name = "w", shape = { "axes", "heads", "blocks" }, doc = "speeds", init = first,
}
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 8, heads = 2, block = pe.plane(), generators = pe.turn "e12",
  combine = pe.sum, phase = w,
}
