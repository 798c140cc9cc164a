-- As many parts as a head may have, each with a map of its own.
local pe = require "pegen"

local parts = {}
for i = 0, 7 do
  parts[i + 1] = {
    span = { 4 * i, 4 }, block = pe.plane(), generators = pe.turn "e12",
    phase = function(_, j) return 2 ^ -(i + j) end,
    pre = function(x) return x * (1 + i) + pe.tanh(x) end,
  }
end
return pe.encoding { name = "eight", doc = "eight parts, each mapped", axes = { "t" }, head_dim = 32, parts = parts }
