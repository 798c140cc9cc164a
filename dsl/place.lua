-- place: positions and displacements as functions of a spec see them, a coordinate an axis.
local core = ...
local check = core.include "check"
local remedy = core.include "remedy"
local place = {}

local hidden = setmetatable({}, { __mode = "k" }) -- the axes of the tables that a spec holds

function place.is(value) return type(value) == "table" and hidden[value] ~= nil end

local function coordinates(axes)
  local list = {}
  for i, axis in ipairs(axes) do list[i] = "." .. axis end
  return check.join(list)
end

local REMEDIES = {
  displacement = "arithmetic on a displacement, which has a coordinate an axis (%s); pe.norm is its length",
  position = "arithmetic on a position, which has a coordinate an axis (%s)",
  query = "arithmetic on a query, of which a score reads %s, its index in the sequence",
  key = "arithmetic on a key, of which a score reads %s, its index in the sequence",
}
local MISSING = {
  displacement = "the displacement has no axis %s%s",
  position = "the position has no axis %s%s",
  query = "a query has no field %s%s, its index in the sequence",
  key = "a key has no field %s%s, its index in the sequence",
}

local function metatable(kind)
  local shared = { __metatable = kind }
  shared.__index = core.word(function(value, axis)
    if math.type(axis) then return nil end -- where a loop over coordinates ends
    check.fail(MISSING[kind], check.show(axis), check.hint(axis, hidden[value]))
  end)
  remedy.number(shared, place.is,
    function(value) check.fail(REMEDIES[kind], coordinates(hidden[value])) end)
  return shared
end

local kinds = {}
for kind in pairs(REMEDIES) do kinds[kind] = metatable(kind) end

-- coordinates_of(kind, axes): r.h, r.w, ... and by number from 1; kind: "displacement" or "position".
function place.coordinates_of(kind, axes)
  local value = {}
  for i, axis in ipairs(axes) do
    value[i] = core.position(i - 1)
    value[axis] = value[i]
  end
  hidden[value] = axes
  return setmetatable(value, kinds[kind])
end

-- token_of(kind, name): what a score reads of a token, its index as `name`; kind: "query" or "key".
function place.token_of(kind, name)
  local value = { [name] = core.position(core.limits["place_" .. kind]) }
  hidden[value] = { name }
  return setmetatable(value, kinds[kind])
end

-- scale q . k, as a score is given it.
function place.product() return core.position(core.limits.place_score) end

return place
