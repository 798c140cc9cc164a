-- error: no part has a 'block'
local pe = require "pegen"
return pe.encoding {
  name = "bad", axes = { "t", "x" }, head_dim = 16,
  parts = { { span = { 0, 8 } } }, -- HERE
}
