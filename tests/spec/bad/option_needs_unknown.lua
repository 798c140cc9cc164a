-- error: option 'factor' needs the option 'scalign', which the spec has not got
local pe = require "pegen"
local factor = pe.option("factor", 1.0, "of lengths", { needs = { scalign = "linear" } })
return pe.encoding { -- HERE
  name = "bad", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12", phase = 1,
}
