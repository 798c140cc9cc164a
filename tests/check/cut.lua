-- A logarithm of a half turn: positions whose phase is one are near its cut, on this side or that.
local pe = require "pegen"

return pe.encoding {
  name = "cut", axes = { "h", "w" }, head_dim = 12, block = pe.vector(3),
  generators = { h = pe.quaternion "i", w = pe.quaternion "j" },
  phase = function(axis, i) return 0.3 ^ (i + 1) end,
  combine = function(R) return pe.exp(pe.log(R.h) + 0.5 * pe.log(R.w)) end,
}
