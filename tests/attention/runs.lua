-- A bias of one axis that is computed once for each displacement of tokens in order: operands gain by displacements.
local pe = require "pegen"

local slope = pe.learned { name = "slope", shape = { "heads" }, doc = "of a head's penalty, before softplus", test_scale = 0.3 }
local bias = pe.learned { name = "bias", shape = { 41, "heads" }, doc = "by distance, the last for all that are further" }

return pe.encoding {
  name = "runs",
  axes = { "t" },
  head_dim = 8,
  heads = 4,
  bias = function(d, h) return bias(d.t + 20, h) - pe.softplus(slope(h)) * pe.log(1 + pe.abs(d.t)) end,
}
