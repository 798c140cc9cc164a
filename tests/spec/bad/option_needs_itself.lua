-- error: option 'factor' needs itself
local pe = require "pegen"
local factor = pe.option("factor", 1.0, "of lengths", { needs = { factor = true } }) -- HERE
return pe.encoding {
  name = "bad", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12", phase = 1,
}
