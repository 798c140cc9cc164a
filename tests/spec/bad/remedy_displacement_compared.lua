-- error: arithmetic on a displacement, which has a coordinate an axis (.t); pe.norm is its length
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  bias = function(d)
    if d < 0 then return 0 end -- HERE
    return -d.t
  end,
}
