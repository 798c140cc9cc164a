-- What was a hole in the sandbox once, asked for and not found.
local pe = require "pegen"

-- The iterator of pairs reads its own table, whatever it is called with.
for _, strange in ipairs { "hello", 7, false, function() end, pe.turn "e12" } do
  local following = pairs { a = 1 }
  local key, value = following(strange, strange, strange)
  assert(key == "a" and value == 1 and following() == nil and following(strange) == nil)
end

-- Addresses.
for _, format in ipairs { "%p", "\0%p", "%d\0%-5p", "%%%p", "%s%\0%p" } do
  local ok, message = pcall(string.format, format, {}, {})
  assert(not ok and not message:find "0x")
end
assert(("%s %%p \0"):format({}) == "table %p \0")
assert(tostring(setmetatable({}, { __name = "thing" })) == "table")

-- A metatable counts as it was set, so that no field of it can become weak or a finalizer later.
local metatable = { __index = { kept = 1 } }
local object = setmetatable({}, metatable)
metatable.__mode, metatable.__gc, metatable.__index = "kv", function() error "finalized" end, nil
assert(getmetatable(object) == metatable and object.kept == 1)
object[1] = {}
for _ = 1, 1e5 do local _ = { {} } end
assert(object[1])
assert(not pcall(setmetatable, object, metatable))
assert(getmetatable(setmetatable({}, { __metatable = false })) == false)
assert(not pcall(setmetatable, setmetatable({}, { __metatable = false }), {}))

-- Sorting is stable, whatever the comparator says.
local list = {}
for i = 1, 1000 do list[i] = { i, i % 7 } end
table.sort(list, function(a, b) return a[2] < b[2] end)
for i = 2, 1000 do assert(list[i - 1][2] < list[i][2] or list[i - 1][1] < list[i][1]) end
table.sort(list, function() return true end)
table.sort(list, function() setmetatable(list, { __index = error, __newindex = error }) return false end)
assert(not pcall(table.sort, list))
assert(not pcall(table.sort, { 1, {}, "x" }))

-- More arguments than a C function's stack holds.
local many = {}
for i = 1, 200 do many[i] = i end
assert(select("#", pcall(table.unpack, many)) == 201 and pe.max(table.unpack(many)) == 200)
assert(select("#", xpcall(table.unpack, error, many)) == 201)

-- What words of the vocabulary stand for is out of reach.
local rule = pe.product { "x" }
rule.kind, rule.order = "nonsense", { "x", "y", "z" }

-- A module that failed is not being loaded any more.
for _ = 1, 3 do
  local _, message = pcall(require, "nowhere")
  assert(message:find "cannot read")
end

local axes = { "x" }
return pe.encoding {
  name = "hostile",
  axes = axes,
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = rule,
  phase = function(_, i)
    for k = 1, 20 do axes[k] = "axis" .. k end
    return i
  end,
  position = function(_, r)
    local leaves = {}
    for k = 1, 150 do leaves[k] = r + k end
    return pe.max(table.unpack(leaves))
  end,
}
