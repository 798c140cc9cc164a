-- Rotations of pairs, or a bias, that read more learned numbers than a GPU's thread has sums of at once
-- (ATTEND_MOST_GAINS).
local pe = require "pegen"

local count = pe.option("count", 17, "numbers that every phase, or the bias, reads")
local biased = pe.option("biased", false, "a bias in place of phases")
local rate = pe.learned { name = "rate", shape = { count }, doc = "summed up in every phase or in the bias" }

local function total(of)
  local sum = 1
  for n = 0, count - 1 do sum = sum + rate(n) * of(n) end
  return sum
end

return pe.encoding {
  name = "crowded",
  axes = { "x" },
  head_dim = 6,
  role = "pairwise",
  block = not biased and pe.plane() or nil,
  generators = not biased and pe.turn "e12" or nil,
  phase = not biased and function(_, i) return total(function(n) return 1 / (1 + n + i) end) end or nil,
  bias = biased and function(delta) return total(function(n) return pe.cos(delta.x / (1 + n)) end) end or nil,
}
