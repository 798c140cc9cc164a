-- define: head_dim=32
local pe = require "pegen"
local D = pe.option("head_dim", 16, "channels")
local s = pe.option("scale", 1.0, "a number")
local w = pe.option("word", "one", "a text")
local l = pe.option("list", { 1, 2 }, "a list")
assert(D == 32 and #l == 2)
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = D,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
