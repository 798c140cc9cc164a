-- A dear bias that reads an input of the query: of each batch it is another.
local pe = require "pegen"
local own = pe.input { name = "own", shape = {}, doc = "a number of the query" }

return pe.encoding {
  name = "bias_inputs",
  axes = { "t" },
  head_dim = 16,
  role = "pairwise",
  bias = function(d) return pe.exp(pe.sin(d.t * own())) * pe.log(1 + pe.abs(d.t)) end,
}
