-- error: option 'base' has another 'range' than two numbers, the lower one first and its default between
local pe = require "pegen"
local base = pe.option("base", 100.0, "frequency base", { range = { 200.0, 1e4 } }) -- HERE
return pe.encoding {
  name = "bad", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12", phase = base,
}
