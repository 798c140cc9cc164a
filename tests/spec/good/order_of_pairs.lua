-- Keys in their order, integers that a float64 does not tell apart among them; where they stand in the table depends on
-- the seed of Lua's hashes.
local pe = require "pegen"

local function keys_of(list)
  local t, keys = {}, {}
  for i = 1, 40 do t["k" .. i] = i end
  for _, key in ipairs(list) do t[key] = true end
  for i = 1, 40 do t["k" .. i] = nil end
  for key in pairs(t) do keys[#keys + 1] = key end
  return keys
end

-- given: in ascending order; put in from the end.
local function expect(given)
  local list = {}
  for i = #given, 1, -1 do list[#list + 1] = given[i] end
  local keys = keys_of(list)
  assert(#keys == #given)
  for i, key in ipairs(keys) do assert(rawequal(key, given[i]) and math.type(key) == math.type(given[i])) end
end

for _, first in ipairs { math.tointeger(2 ^ 53), math.maxinteger - 40, math.mininteger, -math.tointeger(2 ^ 60) } do
  local list = {}
  for i = 0, 30 do list[#list + 1] = first + i end
  expect(list)
end
expect { -math.huge, -2.0 ^ 70, math.mininteger, -1, -0.5, 0, 0.25, 1, 2, 2.5, math.maxinteger - 1, math.maxinteger,
  2.0 ^ 63, 2.0 ^ 64, math.huge }
expect { 1, 2, "1", "2", "a", "a\0", "aa", false, true }

return pe.encoding { name = "ordered", axes = { "x" }, head_dim = 8, block = pe.plane(), generators = pe.turn "e12", phase = 1 }
