-- error: the displacement has no axis 'x'; there is: h, w
local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "h", "w" },
  head_dim = 16,
  bias = function(d)
    return -pe.abs(d.x) -- HERE
  end,
}
