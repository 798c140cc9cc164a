-- error: input 'padding' is read by no score and no bias
local pe = require "pegen"
local lean = pe.input { name = "lean", shape = {}, doc = "of the query" }
local padding = pe.input { name = "padding", shape = {}, of = "key", doc = "of the key" }
return pe.encoding { -- HERE
  name = "x", axes = { "t" }, head_dim = 8,
  bias = pe.polynomial { degree = 1, value = function(delta) return lean() * delta.t end },
  score = function(s, delta) return pe.where(pe.abs(delta.t), 4, s, pe.masked) end,
}
