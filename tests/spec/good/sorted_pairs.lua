local pe = require "pegen"
local keys = ""
for k in pairs { b = 1, a = 1, [2] = 1, [1.5] = 1, [1] = 1, [true] = 1, c = 1 } do keys = keys .. tostring(k) .. " " end
assert(keys == "1 1.5 2 a b c true ")
local t = { a = 1, b = 2, c = 3 }
for k in pairs(t) do t.b = nil; assert(k ~= "b") end
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
