-- error: field 'pre' of pe.encoding goes with a 'block', and there is none
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  add = function(r) return pe.sin(r.t) end,
  pre = pe.tanh, -- HERE
}
