-- error: operand 'w': index 2 (2) is 'w', 0 to 1 was expected; names of axes are indices of a dimension "axes"
local pe = require "pegen"
local w = pe.learned { name = "w", shape = { "heads", 2 }, doc = "radians a unit" }
return pe.encoding {
  name = "named", axes = { "h", "w" }, head_dim = 6, block = pe.vector(3), combine = pe.sum,
  generators = { h = pe.quaternion "i", w = pe.quaternion "j" },
  phase = function(axis, i, head) return w(head, axis == "h" and 0 or axis) end, -- HERE
}
