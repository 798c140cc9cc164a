-- error: 'direction' of pe.init names two dimensions of 'w'; a number from 1 to 2 was expected
local pe = require "pegen"
local w = pe.learned {
  name = "w", shape = { "blocks", "blocks" }, doc = "speeds", init = pe.init { direction = "blocks" }, -- HERE
}
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8, block = pe.plane(), generators = pe.turn "e12",
  phase = function(_, i) return w(i, 0) end,
}
