-- error: entry 1 of 'models' sets the option 'hed_dim', which the spec has not got; did you mean 'head_dim'?
local pe = require "pegen"
local D = pe.option("head_dim", 64, "channels per head")
local layout = pe.option("layout", "split", "where pairs lie", { "interleaved", "split" })
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = D,
  block = pe.plane(),
  layout = layout,
  generators = pe.turn "e12",
  phase = 1,
  models = { { "A", hed_dim = 32 } }, -- HERE
}
