-- define: numbers=1,2.5,-3e-1
local pe = require "pegen"
local given = pe.option("numbers", { 1.0, 2 }, "a list of numbers")
local few = pe.option("few", { 1.5, 2 }, "a list that nobody gives")
assert(#given == 3 and given[2] == 2.5 and given[3] == -0.3 and #few == 2 and few[2] == 2)
return pe.encoding {
  name = "numbers", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12",
  phase = function(_, i) return given[i % 3 + 1] end,
  models = { { "A", numbers = { 1, 2.5 } }, { "B", few = { 0.5 } } },
}
