-- Scores that read inputs of queries and of keys, of which `kind` says one.
local pe = require "pegen"

local D = pe.option("head_dim", 16, "channels of a head")
local heads = pe.option("heads", 1, "heads that differ")
local kind = pe.option("kind", "forgetting", "which score", { "forgetting", "padding", "documents", "tempered", "mixed",
  "turned", "stays", "values", "padded", "leaning", "differs", "pairs", "flat", "factors", "factored" })
local turns = kind == "turned" or kind == "stays" or kind == "values"

local own = pe.input { name = "own", shape = {}, doc = "a number of the query", test_scale = 2 }
local of_key = pe.input { name = "of_key", shape = {}, of = "key", doc = "a number of the key", test_scale = 2 }
local factors = kind == "factors" or kind == "factored" -- of a polynomial, that keys have
local fused = kind == "padded" or kind == "leaning" or kind == "differs" or factors
local rows, key_rows, slope
if fused then
  rows = pe.input { name = "rows", shape = { 3 }, doc = "what the parabolas of the query are" }
  slope = pe.learned { name = "slope", shape = { "heads", 3 }, doc = "what they are of", test_scale = 0.5 }
end
if factors then
  key_rows = pe.input { name = "key_rows", shape = { 4 }, of = "key", doc = "numbers of the key" }
end
local pair
if kind == "pairs" or kind == "flat" then
  pair = pe.input { name = "pair", shape = {}, of = "pair", doc = "a number of the query and the key", test_scale = 2 }
end
if kind == "pairs" then
  slope = pe.learned { name = "slope", shape = { "heads" }, doc = "what that counts in a head", test_scale = 2 }
  key_rows = pe.input { name = "key_rows", shape = { 4 }, of = "key", doc = "numbers behind that of the pair" }
end
if kind == "mixed" or turns then
  rows = pe.input { name = "rows", shape = { 3 }, of = "query", doc = "three numbers of the query" }
  key_rows = pe.input { name = "key_rows", shape = { 4 }, of = "key", doc = "four numbers of the key" }
  slope = pe.learned { name = "slope", shape = { "heads" }, doc = "how fast a head forgets", test_scale = 0.5 }
end

local own_of_score
if kind == "factored" then
  own_of_score = pe.input { name = "own_of_score", shape = {}, doc = "a number of the query that the score reads" }
end

local scores = {
  padding = function(s) return pe.where(of_key(), 0.5, s * (1 + own() / 8), pe.masked) end,
  documents = function(s, d, h, q, k)
    local same = pe.abs(pe.floor(own()) - pe.floor(of_key()))
    return pe.where(same, 0.5, pe.where(q.i, k.j, pe.masked, s), pe.masked)
  end,
  tempered = function(s) return s * pe.exp(own()) / pe.exp(of_key()) end,
  mixed = function(s, d, h)
    local far = pe.abs(d.t) * slope(h) * key_rows(1 + d.t)
    return pe.where(key_rows(3) * own(), 2, s * pe.exp(rows(2)) - far + of_key() * rows(1 - d.t / 2), pe.masked)
  end,
  pairs = function(s, d, h)
    return s + pair() * slope(h) - of_key() * pe.tanh(pair() + own()) + key_rows(1 + d.t) - pe.abs(d.t) / 16
  end,
  flat = function(s) return s + pe.tanh(4 * pair()) + pe.sin(4 * pair()) + pe.cos(4 * of_key()) * own() end,
  padded = function(s, d, h, q, k)
    return pe.where(of_key(), 0.5, pe.where(pe.abs(own() - q.i + k.j), 30, s, pe.masked), pe.masked)
  end,
  leaning = function(s, d) return s * pe.exp(0.25 * own()) + of_key() * pe.abs(d.t) / 16 end,
  factored = function(s, d, _, q, k) return s + own_of_score() * of_key() * pe.abs(d.t) / 16 + (k.j - q.i) / 64 end,
  differs = function(s, d, h) return s * slope(h, 0) * own() * of_key() end,
  turned = function(s, d, h) return s * key_rows(2) + rows(1) * of_key() - 0.1 * own() * pe.abs(d.t) * slope(h) end,
}

-- A polynomial of the displacement and of what keys have.
local function factored(d, term, h)
  local far = d.t * slope(h, term) / 16
  return (rows(term) * of_key() + own()) * d.t / 16 - pe.exp(rows(term)) * far ^ 2 * of_key() * key_rows(3)
    + key_rows(1) ^ 2 * own()
end

return pe.encoding {
  name = "score_inputs", axes = { "t" }, head_dim = D, heads = heads, role = "pairwise",
  block = turns and pe.plane() or nil,
  generators = turns and pe.turn "e12" or nil,
  phase = turns and function(axis, i) return 100 ^ (-2 * i / D) end or nil,
  position = kind == "stays" and function(axis, r) return r * r / 32 end or nil,
  values = kind == "values" and "same" or nil,
  bias = kind == "forgetting" and function() return own() - of_key() end or fused and pe.polynomial {
    degree = 2,
    terms = 3,
    value = factors and factored or function(d, term, h)
      return -pe.exp(rows(term)) * (d.t * slope(h, term) / 16) ^ 2 + rows(term) * d.t / 16
    end,
  } or nil,
  score = kind ~= "forgetting" and kind ~= "factors" and (scores[kind] or scores.turned) or nil,
}
