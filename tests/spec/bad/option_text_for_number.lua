-- error: option 'head_dim' is 'many', a whole number was expected
-- define: head_dim=many
local pe = require "pegen"
local D = pe.option("head_dim", 16, "channels per head") -- HERE
local l = pe.option("layout", "split", "pairs", { "split", "interleaved" }) -- LAYOUT
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
