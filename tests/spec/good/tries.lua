-- Gathers all that could differ from run to run, and puts it into the kernel: addresses, the order of tables, what is
-- collected, the clock.
local pe = require "pegen"
local seen = {}
local function see(...)
  for i = 1, select("#", ...) do seen[#seen + 1] = tostring((select(i, ...))) end
end

local object, f = {}, function() end
see(object, f, pe.sum, pe.encoding, setmetatable({}, { __name = "address" }))
for _, format in ipairs { "%p", "\0%p", "%s", "\0%s %s", "%q" } do see(pcall(string.format, format, object, f)) end
see(pcall(error, object), pcall(function() return object .. "" end), pcall(function() return object < f end))
see(pcall(function() return #f end), pcall(setmetatable, 1, object), pcall(pe.turn, object), pcall(ipairs))

-- Order.
local keys = {}
for i = 1, 200 do keys["key" .. i * 7919 % 1000] = i end
for key, value in pairs(keys) do see(key, value) end
local list = {}
for i = 1, 3000 do list[i] = { i } end
table.sort(list, function(a, b) return a[1] % 3 < b[1] % 3 end)
for i = 1, 3000 do see(list[i][1]) end
local calls = 0
see(pcall(table.sort, list, function() calls = calls + 1 return calls % 3 == 0 end))
for i = 1, 3000 do see(list[i][1]) end

-- What is collected when.
local mode = {}
local weak = setmetatable({}, mode)
mode.__mode = "kv"
for i = 1, 1000 do weak[i] = { i } end
for _ = 1, 1e5 do local _ = { {} } end
local left = 0
for _ in pairs(weak) do left = left + 1 end
see(left, pcall(setmetatable, {}, mode))
for _, name in ipairs { "os", "collectgarbage", "io", "debug", "coroutine", "next", "load" } do
  see(pcall(function() return _ENV[name] end))
end
see(math.random, math.randomseed)

local sum = 0
for _, text in ipairs(seen) do
  for i = 1, #text do sum = (sum * 31 + text:byte(i)) % 2147483647 end
end
return pe.encoding {
  name = "tries",
  doc = "sum " .. sum,
  axes = { "x" },
  head_dim = 8,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return sum / (i + 1) end,
}
