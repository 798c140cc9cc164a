-- error: pe.dense has no field 'precision'
local pe = require "pegen"
local block = pe.dense(8, { precision = "float64" }) -- HERE
return block
