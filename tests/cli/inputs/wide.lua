-- Phases of many operations: what their gradients take is what tests/cli/limits.test is about.
local pe = require "pegen"

local n = pe.option("n", 5, "roots in a phase")
local kind = pe.option("kind", "phase", "where they stand", { "phase", "sum", "bias" })
local names = { "a", "b", "c", "d", "e", "f", "g", "h" }
local w = pe.learned { name = "w", shape = { n + 1 }, doc = "an operand" }

-- The sum of terms k = first .. last, halves added, so that no expression nests deep.
local function sum(x, first, last)
  if first == last then return pe.sqrt(pe.abs(pe.sin(w(first) * x)) + pe.max(w(first), x)) / (1 + w(first - 1) ^ 2) end
  local middle = (first + last) // 2
  return sum(x, first, middle) + sum(x, middle + 1, last)
end

if kind == "sum" then
  return pe.encoding {
    name = "wide", axes = { "t" }, head_dim = 8, add = function(r) return sum(r.t, 1, n) end,
  }
elseif kind == "bias" then
  return pe.encoding {
    name = "wide", axes = { "t" }, head_dim = 8, bias = function(d) return sum(d.t, 1, n) end,
  }
end
return pe.encoding {
  name = "wide", axes = names, head_dim = 8, block = pe.plane(), generators = pe.turn "e12", combine = pe.sum,
  phase = function(axis) return sum(string.byte(axis), 1, n) end,
}
