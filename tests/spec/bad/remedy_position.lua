-- error: arithmetic on a position, which has a coordinate an axis (.t)
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  add = function(r, channel)
    return pe.sin(r / (channel + 1)) -- HERE
  end,
}
