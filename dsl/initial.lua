-- initial: first values of operands, for training. What pe.learned takes as `init`: a text, which is for people alone,
-- a number, a function of an element's indices, or pe.init, a distribution.
--
-- As data it is a distribution (or none: 1), what is drawn being the same along some dimensions, times a factor for
-- each element, of which dimensions that it does not vary along are left out.
local core = ...
local check = core.include "check"
local initial = {}

local WORD = "pe.init"
local FIELDS = { "value", "uniform", "normal", "between", "direction", "same", "scale", "doc" }
local KINDS = { "value", "uniform", "normal", "direction" }
local Initial = { __metatable = "initial values" }
local hidden = setmetatable({}, { __mode = "k" })

local function is_finite(value) return type(value) == "number" and value - value == 0 end

local function interval(field, value)
  local copy = check.list(WORD, field, value, "two numbers")
  if #copy ~= 2 or not is_finite(copy[1]) or not is_finite(copy[2]) or copy[1] >= copy[2] then
    check.wrong(WORD, field, value, "a list of two finite numbers, the lower one first")
  end
  return copy
end

local function factor_of(field, value)
  if type(value) ~= "function" and not is_finite(value) then
    check.wrong(WORD, field, value, "a finite number or a function of an element's indices")
  end
  return value
end

local function check_normal(made, given)
  if not is_finite(given.normal) or given.normal <= 0 then
    check.wrong(WORD, "normal", given.normal, "a standard deviation, a positive number")
  end
  made.deviation = given.normal
  if given.between == nil then return end
  made.between = interval("between", given.between)
  if made.between[1] > 2 * given.normal or made.between[2] < -2 * given.normal then
    check.fail_field("between", "field 'between' of %s leaves out all within two standard deviations of 0", WORD)
  end
end

-- init { uniform = { low, high } | normal = deviation [, between = { low, high }] | direction = dimension,
--        same = dimensions, scale = ... } or { value = ... }
function initial.init(given)
  given = check.fields(WORD, given, FIELDS)
  local made = { doc = check.text(WORD, "doc", given.doc), same = {} }
  for _, kind in ipairs(KINDS) do
    if given[kind] ~= nil then
      if made.kind then check.fail_field(kind, "%s has both '%s' and '%s'; one was expected", WORD, made.kind, kind) end
      made.kind = kind
    end
  end
  if not made.kind then check.fail("%s says nothing; one of these was expected: %s", WORD, check.join(KINDS)) end
  for _, field in ipairs { "same", "scale" } do
    if made.kind == "value" and given[field] ~= nil then
      check.fail_field(field, "field '%s' of %s is for what is drawn; a value needs none", field, WORD)
    end
  end
  if given.between ~= nil and made.kind ~= "normal" then
    check.fail_field("between", "field 'between' of %s truncates 'normal', which was expected beside it", WORD)
  end
  if made.kind == "uniform" then made.between = interval("uniform", given.uniform) end
  if made.kind == "normal" then check_normal(made, given) end
  if made.kind == "value" then made.factor = factor_of("value", given.value) end
  if given.scale ~= nil then made.factor = factor_of("scale", given.scale) end
  if given.same ~= nil then made.same = check.list(WORD, "same", given.same, "dimensions") end
  made.direction = given.direction
  local handle = setmetatable({}, Initial)
  hidden[handle] = made
  return handle
end

-- The place from 1 of a dimension that is given by its name or place.
local function dimension_of(operand, field, given)
  local place = math.type(given) == "integer" and given >= 1 and given <= #operand.dimensions and given or nil
  for i, name in ipairs(operand.dimensions) do
    if name == given and type(given) == "string" then
      if place then
        check.fail_field("init", "'%s' of %s names two dimensions of '%s'; a number from 1 to %d was expected", field,
          WORD, operand.name, #operand.dimensions)
      end
      place = i
    end
  end
  if not place then
    check.fail_field("init", "'%s' of %s is %s; a dimension of '%s' was expected: %s, or a number from 1 to %d", field,
      WORD, check.show(given), operand.name, check.join(operand.dimensions), #operand.dimensions)
  end
  return place
end

local function describe(made, operand)
  local words
  if made.kind == "value" then
    return type(made.factor) == "function" and "a function of its indices" or string.format("%.9g", made.factor)
  elseif made.kind == "uniform" then
    words = string.format("uniform, %.9g to %.9g", made.between[1], made.between[2])
  elseif made.kind == "normal" then
    words = string.format("normal, standard deviation %.9g", made.deviation)
    if made.between then
      words = words .. string.format(", truncated at %.9g and %.9g", made.between[1], made.between[2])
    end
  else
    words = "uniform on the unit sphere of dimension " .. made.direction
  end
  for i, place in ipairs(made.same) do
    words = words .. (i == 1 and ", the same along dimension " or " and ") .. place
  end
  if type(made.factor) == "function" then return words .. ", times a function of its indices" end
  return made.factor and words .. string.format(", times %.9g", made.factor) or words
end

-- What pe.learned was given as `init`, checked for the operand: its text, and its data or nil.
function initial.read(word, given, operand)
  if given == nil or type(given) == "string" then return check.text(word, "init", given, ""), nil end
  if type(given) == "function" or is_finite(given) then given = initial.init { value = given } end
  local asked = type(given) == "table" and hidden[given]
  if not asked then check.wrong(word, "init", given, "a text, a number, a function or pe.init {...}") end
  local made = {
    kind = asked.kind, between = asked.between, deviation = asked.deviation, factor = asked.factor, same = {},
  }
  if asked.kind == "direction" then made.direction = dimension_of(operand, "direction", asked.direction) end
  local is_same = {}
  for i, name in ipairs(asked.same) do
    made.same[i] = dimension_of(operand, "same", name)
    if is_same[made.same[i]] then
      check.fail_field("init", "'same' of %s names dimension %d of '%s' twice", WORD, made.same[i], operand.name)
    end
    is_same[made.same[i]] = true
    if made.same[i] == made.direction then
      check.fail_field("init", "%s draws a direction over dimension %d of '%s', which cannot be the same along it",
        WORD, made.direction, operand.name)
    end
  end
  return asked.doc or describe(made, operand), made
end

-- Values of a function for every element, indices from 0, an axis by its name.
local function evaluate(operand, f, axes)
  local n = 1
  for _, size in ipairs(operand.sizes) do n = n * size end
  if n > core.limits.rows then
    check.fail_in(f, "'init' of operand '%s' is a function, and the operand has %d elements; at most %d were expected",
      operand.name, n, core.limits.rows)
  end
  local values, indices = {}, {}
  for k = 0, n - 1 do
    local rest = k
    for i = #operand.sizes, 1, -1 do
      indices[i] = rest % operand.sizes[i]
      rest = rest // operand.sizes[i]
      if operand.dimensions[i] == "axes" then indices[i] = axes[indices[i] + 1] end
    end
    local value = f(table.unpack(indices))
    if not is_finite(value) then
      check.fail_in(f, "'init' of operand '%s' is %s at (%s), a finite number was expected", operand.name,
        check.show(value), check.join(indices))
    end
    values[k + 1] = value
  end
  return values
end

-- Leaves out a dimension along which all values are the same: the sizes before it, its own, behind it.
local function fold(values, before, size, behind)
  local folded = {}
  for i = 0, before - 1 do
    for k = 1, behind do
      local first = values[i * size * behind + k]
      for j = 1, size - 1 do
        if values[(i * size + j) * behind + k] ~= first then return nil end
      end
      folded[i * behind + k] = first
    end
  end
  return folded
end

-- The data, for core.finish: kind, numbers, places from 0, and the factor with its shape.
function initial.data(operand, axes)
  local made = operand.initial
  if not made then return nil end
  local data = { kind = made.kind, deviation = made.deviation or 0, truncated = made.kind == "normal" and
    made.between ~= nil, low = made.between and made.between[1] or 0, high = made.between and made.between[2] or 0,
    direction = made.direction and made.direction - 1 or -1, same = {}, sizes = {}, factor = { made.factor or 1 } }
  for i, place in ipairs(made.same) do data.same[i] = place - 1 end
  for i in ipairs(operand.sizes) do data.sizes[i] = 1 end
  if type(made.factor) ~= "function" then return data end
  data.factor = evaluate(operand, made.factor, axes)
  local before = 1
  for i, size in ipairs(operand.sizes) do
    local folded = fold(data.factor, before, size, #data.factor // (before * size))
    if folded then
      data.factor = folded
    else
      data.sizes[i], before = size, before * size
    end
  end
  return data
end

return initial
