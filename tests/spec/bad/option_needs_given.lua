-- error: option 'scaling' is 'linear', which needs the option 'factor'
-- define: scaling=linear
local pe = require "pegen"
local scaling = pe.option("scaling", "none", "rule", { "none", "linear", needs = { factor = true } })
local factor = pe.option("factor", 1.0, "of lengths")
return pe.encoding { -- HERE
  name = "bad", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12", phase = 1,
}
