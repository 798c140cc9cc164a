-- A file of the folder parts; one beside the spec goes before it.
local pe = require "pegen"
local within = require "within"
assert(require "frequencies" ~= "of parts")
return pe.encoding {
  name = "within_parts",
  axes = { "x" },
  head_dim = 2 * within.blocks,
  block = pe.plane(),
  generators = pe.turn(within.turn),
  phase = 1,
}
