-- error: option 'steps' has 1.5 in its range, a whole number was expected
local pe = require "pegen"
local steps = pe.option("steps", 2, "steps", { range = { 1.5, 8 } }) -- HERE
return pe.encoding {
  name = "bad", axes = { "t" }, head_dim = 16, block = pe.plane(), generators = pe.turn "e12", phase = steps,
}
