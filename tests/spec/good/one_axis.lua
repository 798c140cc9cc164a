local pe = require "pegen"
return pe.encoding {
  name = "bad",
  axes = { "t" },
  head_dim = 16,
  block = pe.plane(),
  generators = { t = pe.turn "e12" },
  phase = 0.5,
}
