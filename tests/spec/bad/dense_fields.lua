-- error: pe.dense takes named fields: pe.dense { prepare = ... }, not 'float64'
local pe = require "pegen"
local block = pe.dense(8, "float64") -- HERE
return block
