-- A bias of many elementary functions: what compiling it costs is what tests/cli/limits.test is about.
local pe = require "pegen"

local n = pe.option("n", 5, "terms")

-- The sum of terms k = first .. last, halves added, so that no expression nests deep.
local function sum(d, first, last)
  if first == last then
    return pe.sin(pe.exp(-d ^ 2 * first) + first) / pe.log(2 + d ^ 2 + first)
  end
  local middle = (first + last) // 2
  return sum(d, first, middle) + sum(d, middle + 1, last)
end

return pe.encoding {
  name = "large",
  axes = { "t" },
  head_dim = 64,
  value_dim = 64,
  bias = function(delta) return sum(delta.t, 1, n) end,
}
