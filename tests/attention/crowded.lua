-- Rotations of pairs whose phases read more learned numbers than a GPU's thread has sums of (ATTEND_MOST_GAINS).
local pe = require "pegen"

local count = pe.option("count", 17, "numbers that every phase reads")
local rate = pe.learned { name = "rate", shape = { count }, doc = "summed up in every phase" }

return pe.encoding {
  name = "crowded",
  axes = { "x" },
  head_dim = 6,
  role = "pairwise",
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i)
    local sum = 1
    for n = 0, count - 1 do sum = sum + rate(n) / (1 + n + i) end
    return sum
  end,
}
