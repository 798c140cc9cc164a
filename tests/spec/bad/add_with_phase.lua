-- error: field 'phase' of pe.encoding goes with a 'block', and there is none
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  phase = 1, -- HERE
  add = function(r, c) return r.h end,
}
