-- A second plane that turns where an operand is beyond what is drawn of it: on one side of the kink the bivector is
-- simple, on the other it is not. `check` has to go there, and the closed form has to be right there.
local pe = require "pegen"

local kind = pe.option("kind", "max", "what is 0 nearby", { "max", "min", "floor", "where", "abs" })
local vectors = pe.option("vectors", 4, "vectors of a block", { 4, 5 })
local w = pe.learned { name = "w", shape = { "blocks" }, doc = "what turns the second plane" }

local beyond = {
  max = function(x) return pe.max(x - 5, 0) end,
  min = function(x) return pe.min(x + 5, 0) end,
  floor = function(x) return pe.floor((x + 64) / 128) end,
  where = function(x) return pe.where(3, x, x, 0) end,
  abs = function(x) return pe.abs(x - 5) - 5 + x end,
}

return pe.encoding {
  name = "kinks",
  doc = "a turn that is double beyond a kink",
  axes = { "x" },
  head_dim = 4 * vectors,
  block = pe.vector(vectors),
  generators = function(_, i) return pe.turn "e12" + pe.turn "e34" * beyond[kind](w(i)) end,
  phase = 1,
}
