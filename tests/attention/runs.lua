-- Biases of one axis that are computed once for each displacement of tokens in order. `kind` says of what: all of the
-- bias is ("table"), whose operands gain by displacements; or the place at which a key's row is read ("rows").
local pe = require "pegen"

local kind = pe.option("kind", "table", "what a pair adds", { "table", "rows" })
local slope =
  pe.learned { name = "slope", shape = { "heads" }, doc = "of a head's penalty, before softplus", test_scale = 0.3 }
local bias = kind == "table"
  and pe.learned { name = "bias", shape = { 41, "heads" }, doc = "by distance, the last for all that are further" }
local rows = kind == "rows"
  and pe.input { name = "rows", shape = { 41 }, of = "key", doc = "by the logarithm of a distance" }

local function sign(x, value) return pe.where(x, 0, -value, value) end

local biases = {
  table = function(d, h) return bias(d.t + 20, h) - pe.softplus(slope(h)) * pe.log(1 + pe.abs(d.t)) end,
  rows = function(d, h)
    local far = pe.floor(4.5 * pe.log(1 + pe.abs(d.t)))
    return rows(20 + sign(d.t, far)) - pe.softplus(slope(h)) * pe.abs(d.t)
  end,
}

return pe.encoding {
  name = "runs",
  axes = { "t" },
  head_dim = 8,
  heads = 4,
  bias = biases[kind],
}
