-- error: field 'combine' of pe.encoding is a function, pe.slerp {
local pe = require "pegen"
return pe.encoding {
  name = "bare", axes = { "h", "w" }, head_dim = 6, block = pe.vector(3),
  generators = { h = pe.quaternion "i", w = pe.quaternion "j" }, phase = 1, combine = pe.slerp, -- HERE
}
