-- A phase too small to decay, of one axis alone, and an amplitude. Axis y is listened to by no block.
local pe = require "pegen"
return pe.encoding {
  name = "frozen",
  axes = { "x", "y" },
  head_dim = 9,
  block = pe.multivector { algebra = { 3, 0, 0 }, grades = { 1 } },
  generators = { x = pe.turn "e12", y = pe.turn "e23" },
  combine = pe.product { "x", "y" },
  phase = function(axis, _) return axis == "x" and 1e-9 or 0 end,
  amplitude = 2.0,
}
