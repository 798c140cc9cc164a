-- error: attempt to perform arithmetic on a nil value
local pe = require "pegen"
local function phase(_, i)
  return i * missing -- HERE
end
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = phase,
}
