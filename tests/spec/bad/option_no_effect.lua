-- error: option 'factor' has no effect where 'scaling' is 'none'; it needs scaling=linear, ntk
-- define: factor=8
local pe = require "pegen"
local scaling = pe.option("scaling", "none", "rule", { "none", "linear", "ntk" })
local factor = pe.option("factor", 1.0, "of lengths", { needs = { scaling = { "linear", "ntk" } } })
return pe.encoding { -- HERE
  name = "bad", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12", phase = 1,
}
