-- error: pe.encoding takes named fields
local pe = require "pegen"
return pe.encoding(7) -- HERE
