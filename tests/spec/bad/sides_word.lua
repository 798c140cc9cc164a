-- error: field 'sides' of pe.encoding is 'both', "same" or "dual" was expected
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "x" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = 1,
  sides = "both", -- HERE
}
