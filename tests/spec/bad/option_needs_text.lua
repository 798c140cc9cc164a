-- error: field 'needs' of pe.option is 'scaling'
local pe = require "pegen"
local factor = pe.option("factor", 1.0, "of lengths", { needs = "scaling" }) -- HERE
return pe.encoding {
  name = "bad", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12", phase = 1,
}
