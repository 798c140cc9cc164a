-- Functions of displacements that tell neighbours apart, wherever they are; `kind` says which.
local pe = require "pegen"

local kind = pe.option("kind", "slope", "what a pair adds", { "slope", "table", "documents", "window" })
local slope = kind == "slope"
  and pe.learned { name = "slope", shape = { "heads" }, doc = "of a head's penalty, before softplus", test_scale = 0.1 }
local bias = kind == "table"
  and pe.learned { name = "bias", shape = { 16, "heads" }, doc = "by distance, the last for all that are further" }

local biases = {
  slope = function(d, h) return -pe.softplus(slope(h)) * pe.abs(d.t) end,
  table = function(d, h) return bias(d.t + 8, h) end,
  documents = function(d) return pe.where(pe.abs(d.t), 0.5, 0, pe.masked) end,
}
local scores = {
  window = function(s, d) return pe.where(pe.abs(d.t), 40, s - 0.01 * pe.abs(d.t), pe.masked) end,
}

return pe.encoding {
  name = "far", role = "pairwise", axes = { "t" }, head_dim = 8, heads = 2,
  bias = biases[kind],
  score = scores[kind],
}
