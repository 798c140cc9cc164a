-- options: constants of a kernel that -D name=value sets.
local core = ...
local check = core.include "check"
local options = {}
local declared, order = {}, {}

local function whole(text)
  local digits = text:sub(1, 1) == "-" and text:sub(2) or text
  if digits == "" or #digits > 18 then return nil end
  for i = 1, #digits do
    if digits:byte(i) < 48 or digits:byte(i) > 57 then return nil end
  end
  return math.tointeger(tonumber(text))
end

local function number(text)
  local value = tonumber(text)
  if value and value == value and math.abs(value) < math.huge then return value + 0.0 end
end

local function boolean(text)
  if text == "true" then return true end
  if text == "false" then return false end
end

-- The parser of a list whose items `parse` reads.
local function list_of(parse)
  return function(text)
    local values = {}
    if text == "" then return values end
    for item in (text .. ","):gmatch "[^,]*," do
      local value = parse(item:sub(1, -2))
      if value == nil then return nil end
      values[#values + 1] = value
    end
    return values
  end
end

local KINDS = {
  integer = { parse = whole, expected = "a whole number" },
  number = { parse = number, expected = "a number" },
  boolean = { parse = boolean, expected = "true or false" },
  string = { parse = function(text) return text end, expected = "a text" },
  list = { parse = list_of(whole), expected = "whole numbers separated by commas" },
  numbers = { parse = list_of(number), expected = "numbers separated by commas" },
}

local function kind_of(default)
  local kind = math.type(default) or type(default)
  if kind == "float" then return "number" end
  if kind ~= "table" then return kind end
  return math.type(default[1]) == "float" and "numbers" or "list"
end

local function text_of(value)
  if type(value) == "number" then return core.number_text(value) end
  if type(value) ~= "table" then return tostring(value) end
  local texts = {}
  for i, item in ipairs(value) do texts[i] = core.number_text(item) end
  return table.concat(texts, ",")
end

-- doc: the option's, which says what there is beside its choices. field: where the value stands, if not where the
-- option does.
local function check_choices(name, value, choices, doc, field)
  local values = type(value) == "table" and value or { value }
  for _, each in ipairs(values) do
    if not check.contains(choices, each) then
      local texts = {}
      for i, choice in ipairs(choices) do texts[i] = text_of(choice) end
      local message = string.format("option '%s' is %s, one of these was expected: %s (%s)", name, check.show(each),
        check.join(texts), doc)
      if field then core.fail_field(field, message) end
      core.fail(message)
    end
  end
end

-- What an option has no effect without: { name = values of that option }, or { name = true } where it must be given.
local function checked_needs(name, needs)
  if type(needs) ~= "table" then
    check.wrong("pe.option", "needs", needs, "a table of options and the values they need")
  end
  local copy, empty = {}, true
  for other, values in pairs(needs) do
    if type(other) ~= "string" then check.wrong("pe.option", "needs", other, "the name of an option") end
    if other == name then check.fail("option '%s' needs itself", name) end
    copy[other] = values == true or check.list("pe.option", "needs", type(values) == "table" and values or { values },
      "values")
    empty = false
  end
  if empty then
    check.fail("option '%s' has empty 'needs', the name of an option and its values were expected", name)
  end
  return copy
end

-- Where a control of the option goes, which other values may leave: two numbers.
local function checked_range(name, range, default)
  local copy = check.list("pe.option", "range", range, "two numbers")
  if type(default) ~= "number" then check.fail("option '%s' has a range, and is no number", name) end
  for _, value in ipairs(copy) do
    if math.type(value) ~= math.type(default) and math.type(default) == "integer" or type(value) ~= "number" then
      check.fail("option '%s' has %s in its range, %s was expected", name, check.show(value),
        KINDS[kind_of(default)].expected)
    end
  end
  if #copy ~= 2 or not (-math.huge < copy[1] and copy[1] <= default and default <= copy[2] and copy[1] < copy[2]
    and copy[2] < math.huge) then
    check.fail("option '%s' has another 'range' than two numbers, the lower one first and its default between", name)
  end
  return copy
end

-- option(name, default, doc [, choices]): the value of -D name=value, or the default. The default
-- says what kind it is: 64 a whole number, 100.0 a number, true, "text", {1, 2} a list of whole numbers, {1.5} of
-- numbers. choices: the values that are allowed, in its field `needs` what the option has no effect without, and in
-- `range` usual values.
function options.option(name, default, doc, choices)
  check.identifier("pe.option", "name", name)
  local kind = KINDS[kind_of(default)]
  if not kind then
    check.fail("option '%s' has %s as its default, a number, text, boolean or list was expected", name,
      check.show(default))
  end
  if type(default) == "table" then default = check.list("pe.option", "default", default, "numbers") end
  if type(doc) ~= "string" then check.fail("option '%s' lacks its description: pe.option(name, default, doc)", name) end
  check.text("pe.option", "doc", doc)
  if declared[name] then check.fail("option '%s' is declared twice", name) end
  local needs, range
  if type(choices) == "table" and (choices.needs ~= nil or choices.range ~= nil) then
    local values
    needs = choices.needs ~= nil and checked_needs(name, choices.needs) or nil
    range = choices.range ~= nil and checked_range(name, choices.range, default) or nil
    for key, value in pairs(choices) do
      if key ~= "needs" and key ~= "range" then
        values = values or {}
        values[key] = value
      end
    end
    choices = values
  end
  declared[name] = { kind = kind_of(default), choices = choices, needs = needs, default = text_of(default), doc = doc }
  order[#order + 1] = name
  local text = core.define(name)
  local value = default
  if text then
    value = kind.parse(text)
    if value == nil then check.fail("option '%s' is %s, %s was expected", name, check.show(text), kind.expected) end
  elseif type(default) == "table" then
    value = kind.parse(text_of(default))
    if not value then check.fail("option '%s': %s were expected as its default", name, kind.expected) end
  end
  if type(value) == "string" then check.text("pe.option", name, value) end
  local texts
  if choices ~= nil then
    check_choices(name, value, check.list("pe.option", "choices", choices, "values"), doc)
    texts = {}
    for i, choice in ipairs(choices) do texts[i] = text_of(choice) end
  end
  core.option(name, text_of(value), doc, text ~= nil, kind_of(default), text_of(default), texts,
    table.unpack(range or {}))
  declared[name].value, declared[name].is_given = value, text ~= nil
  return value
end

-- Refuses options that were given another value than their default and have no effect beside the others. All options
-- are declared when pe.encoding comes here.
function options.settle()
  for _, name in ipairs(order) do
    local option = declared[name]
    local says_something = option.is_given and text_of(option.value) ~= option.default
    -- One at a time, in an order that does not depend on the table's.
    local others = {}
    for other in pairs(option.needs or {}) do others[#others + 1] = other end
    table.sort(others)
    for _, other in ipairs(others) do
      local needed, values = declared[other], option.needs[other]
      if not needed then check.fail("option '%s' needs the option '%s', which the spec has not got", name, other) end
      if says_something and values == true and not needed.is_given then
        check.fail("option '%s' is %s, which needs the option '%s'", name, check.show(option.value), other)
      end
      if says_something and values ~= true and not check.contains(values, needed.value) then
        local texts = {}
        for i, value in ipairs(values) do texts[i] = text_of(value) end
        check.fail("option '%s' has no effect where '%s' is %s; it needs %s=%s", name, other, check.show(needed.value),
          other, check.join(texts))
      end
    end
  end
end

-- The text by which -D gives an option, declared before, this value. place: what it stands in, for messages.
function options.given_text(name, value, place)
  local option = declared[name]
  if not option then
    local names = {}
    for known in pairs(declared) do names[#names + 1] = known end
    check.fail_field("models", "%s sets the option '%s', which the spec has not got%s", place, name,
      check.hint(name, names))
  end
  if type(value) == "table" then value = check.list("models", name, value, "numbers") end
  if option.kind == "numbers" and kind_of(value) == "list" then -- as { 1, 1.5 }
    for i, item in ipairs(value) do value[i] = math.type(item) and item + 0.0 or item end
  end
  if option.kind == "number" and math.type(value) == "integer" then value = value + 0.0 end
  local of_kind = kind_of(value) == option.kind or option.kind == "numbers" and type(value) == "table"
  local fits = of_kind and KINDS[option.kind].parse(text_of(value)) ~= nil
  if not fits then
    check.fail_field("models", "%s sets the option '%s' to %s, %s was expected", place, name, check.show(value),
      KINDS[option.kind].expected)
  end
  if type(value) == "string" then check.text("models", name, value) end
  if option.choices ~= nil then check_choices(name, value, option.choices, option.doc, "models") end
  return text_of(value)
end

-- The options of every spec; pe.encoding declares them after the spec's own. has_inverse: of encodings that can be
-- undone.
function options.tokens(n_axes, has_inverse)
  local skip = options.option("skip_tokens", 0, "tokens at the front that pass through (CLS, registers)")
  local inverse = has_inverse and options.option("inverse", false, "turn back: the inverse of the encoding")
  local grid = options.option("grid", {}, "sizes of a built-in row-major grid of positions, one per axis")
  if skip < 0 or skip > 2 ^ 30 then check.fail("option 'skip_tokens' is %d, a number of tokens was expected", skip) end
  if #grid ~= 0 and #grid ~= n_axes then
    check.fail("option 'grid' has %d sizes, one for each of the %d axes was expected", #grid, n_axes)
  end
  local tokens = 1
  for _, size in ipairs(grid) do
    if size < 1 or size > 2 ^ 30 then check.fail("option 'grid': size %d, a positive number was expected", size) end
    tokens = tokens * size
    if tokens > 2 ^ 30 then check.fail("option 'grid' has more than 2^30 positions") end
  end
  return skip, grid, inverse
end

return options
