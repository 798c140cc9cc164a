-- A bias that is no number wherever a key is seen: no query is one that sees nothing.
local pe = require "pegen"

return pe.encoding {
  name = "no_number", axes = { "t" }, head_dim = 8,
  bias = function(delta) return pe.where(delta.t, 1, pe.log(-1 - pe.abs(delta.t)), pe.masked) end,
}
