-- error: out of memory: a string may have 65536 bytes
local s = "x"
for _ = 1, 17 do s = s .. s end -- HERE
local pe = require "pegen"
return pe.encoding { name = "long_string", axes = { "x" }, head_dim = 4, block = pe.plane(), generators = pe.turn "e12", phase = 1 }
