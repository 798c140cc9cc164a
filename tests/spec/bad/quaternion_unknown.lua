-- error: "i", "j" or "k" was expected
local pe = require "pegen"
local q = pe.quaternion "l" -- HERE
