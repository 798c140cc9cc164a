-- error: no option 'hed_dim', did you mean 'head_dim'?; the spec's options: head_dim, layout, skip_tokens, inverse, grid
-- define: hed_dim=8
-- no line
local pe = require "pegen"
local D = pe.option("head_dim", 16, "channels per head")
local l = pe.option("layout", "split", "pairs", { "split", "interleaved" }) -- LAYOUT
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = D,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
