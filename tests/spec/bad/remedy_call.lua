-- error: an expression is one number, and was called as if it were more
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(d)
    return -d.t(0) -- HERE
  end,
}
