-- error: no word pe.quaternon; did you mean 'quaternion'?
local pe = require "pegen"
local q = pe.quaternon "i" -- HERE
