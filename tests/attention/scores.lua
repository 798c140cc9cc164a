-- Scores that are functions of the product, of which `kind` says one.
local pe = require "pegen"

local D = pe.option("head_dim", 16, "channels of a head")
local kind = pe.option("kind", "softcap", "which score", { "softcap", "causal", "prefix", "window", "sloped", "both",
  "document", "learned", "table", "squared", "turned", "nothing", "nested", "guarded", "tempered",
  "sunk", "sunk_turned" })
local rotates = kind == "turned" or kind == "both" or kind == "sunk_turned"
local slope = pe.learned { name = "slope", shape = { "heads" }, doc = "how fast a head forgets", test_scale = 0.5 }
local gate = pe.learned { name = "gate", shape = { "heads" }, doc = "what a head multiplies by" }
local bias = pe.learned { name = "bias", shape = { 16, "heads" }, doc = "by lag" }

local scores = {
  softcap = function(s) return 3 * pe.tanh(s / 3) end,
  causal = function(s, d, h, q, k) return pe.where(q.i, k.j, pe.masked, s) end,
  prefix = function(s, d, h, q, k) return pe.where(k.j, 17, s, pe.where(q.i, k.j, pe.masked, s)) end,
  window = function(s, d) return pe.where(pe.abs(d.t), 5, s - 0.1 * pe.abs(d.t), pe.masked) end,
  sloped = function(s, d, h, q, k) return s - (0.5 + h) * pe.abs(q.i - k.j) / 64 end,
  document = function(s, d) return s + pe.where(pe.abs(d.t), 6, 0, pe.masked) end,
  learned = function(s, d, h) return 2 * pe.tanh(gate(h) * s / 2) - slope(h) * pe.abs(d.t) end,
  table = function(s, d, h, q, k) return s * (1 + bias(k.j - q.i + 8, h) / 4) end,
  squared = function(s) return 1 - s * s / 4 end,
  turned = function(s, d, h) return 3 * pe.tanh(s / 3) - slope(h) * pe.abs(d.t) end,
  both = function(s, d, h, q, k) return pe.where(q.i, k.j, pe.masked, gate(h) * s) end,
  nothing = function(s, d, h, q, k) return -0.01 * pe.abs(q.i - k.j) end,
  nested = function(s, d, h, q, k)
    local near = pe.where(pe.abs(d.t), 9, s, 0.5 * s)
    return pe.where(k.j - 2 * pe.floor(k.j / 2), 0.5, near, pe.where(q.i, k.j + 20, near, pe.masked)) + 0.25
  end,
  guarded = function(s, d, h, q, k) return pe.log1p(s * s) + pe.where(q.i, k.j, pe.masked, 0) end,
  tempered = function(s, d, h, q, k) return s * pe.log(1 + q.i) / 3 end,
  sunk = function(s, d, h, q, k) return pe.where(k.j, q.i - 4, pe.masked, gate(h) * s) end,
}

return pe.encoding {
  name = "scores", axes = { "t" }, head_dim = D, heads = 2, role = "pairwise",
  block = rotates and pe.plane() or nil,
  generators = rotates and pe.turn "e12" or nil,
  phase = rotates and function(axis, i) return (kind == "both" and gate(0) or 1) * 100 ^ (-2 * i / D) end or nil,
  score = scores[kind],
  sink = (kind == "sunk" or kind == "sunk_turned") and function(h) return 2 * gate(h) + pe.exp(-slope(h)) end or nil,
}
