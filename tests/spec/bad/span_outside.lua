-- error: field 'span' of pe.encoding is 16, a whole number from 0 to 8, the count of { first channel, count }, was expected
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  span = { 8, 16 }, -- HERE
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
