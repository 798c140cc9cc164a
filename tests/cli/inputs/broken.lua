local pe = require "pegen"
return pe.encoding { name = "broken", axes = { "t" }
