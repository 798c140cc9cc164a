-- error: the polynomial has another form in term 1 of head 0 than in term 0
local pe = require "pegen"
return pe.encoding {
  name = "x", axes = { "h" }, head_dim = 8,
  bias = pe.polynomial {
    degree = 2,
    terms = 3,
    value = function(delta, l) return l == 1 and delta.h or delta.h ^ 2 end, -- HERE
  },
}
