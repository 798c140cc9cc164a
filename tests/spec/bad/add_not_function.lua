-- error: field 'add' of pe.encoding is 3, function(r, channel, head) was expected
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  add = 3, -- HERE
}
