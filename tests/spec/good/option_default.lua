-- define: factor=1
-- define: scaling=none
-- An option that is given its default says what is the case anyway.
local pe = require "pegen"
local scaling = pe.option("scaling", "none", "rule", { "none", "linear", needs = { factor = true } })
local factor = pe.option("factor", 1.0, "of lengths", { needs = { scaling = "linear" } })
return pe.encoding {
  name = "defaults", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12",
  phase = scaling == "linear" and 1 / factor or 1,
}
