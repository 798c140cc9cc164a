-- error: arithmetic on a displacement, which has a coordinate an axis (.h, .w); pe.norm is its length
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "h", "w" },
  head_dim = 16,
  bias = function(d)
    return -d -- HERE
  end,
}
