-- error: add has another form in channel 1 of head 0 than in channel 0
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  add = function(r, c) return c == 1 and r.h or pe.sin(r.h) end, -- HERE
}
