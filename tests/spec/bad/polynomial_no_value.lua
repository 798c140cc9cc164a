-- error: pe.polynomial lacks the field 'value'
local pe = require "pegen"
local bias = pe.polynomial { degree = 2 } -- HERE
return pe.encoding { name = "x", axes = { "h" }, head_dim = 8, bias = bias }
