-- A bias that hides every key beyond a distance, and all of them from head 1.
local pe = require "pegen"

return pe.encoding {
  name = "blind",
  axes = { "t" },
  head_dim = 16,
  heads = 2,
  bias = function(delta, head) return pe.where(2 - 5 * head, pe.norm(delta), pe.masked, 0) end,
}
