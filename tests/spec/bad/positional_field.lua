-- error: has a value without a field name
local pe = require "pegen"
return pe.encoding { "rope" }
