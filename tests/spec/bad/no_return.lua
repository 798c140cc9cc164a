-- error: must return pegen.encoding
local pe = require "pegen"
