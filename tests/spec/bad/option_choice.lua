-- error: option 'layout' is 'spilt', one of these was expected: split, interleaved (pairs)
-- define: layout=spilt
local pe = require "pegen"
local D = pe.option("head_dim", 16, "channels per head")
local l = pe.option("layout", "split", "pairs", { "split", "interleaved" }) -- HERE
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
