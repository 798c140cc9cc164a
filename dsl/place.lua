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
}

local function metatable(kind)
  local shared = { __metatable = kind }
  shared.__index = core.word(function(value, axis)
    if math.type(axis) then return nil end -- where a loop over coordinates ends
    check.fail("the %s has no axis %s%s", kind, check.show(axis), check.hint(axis, hidden[value]))
  end)
  remedy.number(shared, place.is,
    function(value) check.fail(REMEDIES[kind], coordinates(hidden[value])) end)
  return shared
end

local kinds = { displacement = metatable "displacement", position = metatable "position" }

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

return place
