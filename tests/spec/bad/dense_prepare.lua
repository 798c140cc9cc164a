-- error: field 'prepare' of pe.dense is 'float46', "float32" or "float64" was expected
local pe = require "pegen"
local block = pe.dense(8, { prepare = "float46" }) -- HERE
return block
