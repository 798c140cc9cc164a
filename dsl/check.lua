-- check: what the words of the vocabulary ask of their arguments.
local core = ...
local check = {
  sealed = false, -- set when pe.encoding begins: operands and inputs are declared before
  about = "",     -- what messages are of: "part 2: " of one of several parts
}

function check.fail(message, ...) core.fail(check.about .. string.format(message, ...)) end
-- At the line of a field, or where a function of the spec is defined.
function check.fail_field(field, message, ...) core.fail_field(field, check.about .. string.format(message, ...)) end
function check.fail_in(source, message, ...) core.fail(check.about .. string.format(message, ...), source) end

-- What the vocabulary's own tables are called, by what their metatables show.
local KINDS = {
  operand = "a whole operand", input = "a whole input", matrix = "a skew matrix", displacement = "a whole displacement",
  position = "a whole position", polynomial = "a pe.polynomial", combine = "a rule of 'combine'",
}

-- A value as an error message shows it.
function check.show(value)
  if type(value) == "string" then
    local text = ""
    for i = 1, math.min(#value, 40) do text = text .. (value:byte(i) < 32 and "?" or value:sub(i, i)) end
    return "'" .. text .. (#value > 40 and "..." or "") .. "'"
  end
  if type(value) == "table" then return KINDS[getmetatable(value)] or "a table" end
  if type(value) == "function" then return "a function" end
  return tostring(value)
end

function check.join(list) return table.concat(list, ", ") end

function check.contains(list, value)
  for _, entry in ipairs(list) do
    if entry == value then return true end
  end
  return false
end

-- "; did you mean 'x'?", or the whole list where nothing is near.
function check.hint(word, list)
  local nearest = type(word) == "string" and core.nearest(word, list)
  if nearest then return string.format("; did you mean '%s'?", nearest) end
  return string.format("; there is: %s", check.join(list))
end

-- A table of named fields, none unknown, as a copy: functions of the spec that are called meanwhile may change theirs.
function check.fields(word, given, known)
  if type(given) ~= "table" then
    check.fail("%s takes named fields: %s { %s = ... }, not %s", word, word, known[1], check.show(given))
  end
  if getmetatable(given) ~= nil then check.fail("%s takes a table without a metatable", word) end
  local copy = {}
  for key, value in pairs(given) do
    copy[key] = value
    if type(key) ~= "string" then check.fail("%s has a value without a field name", word) end
    if not check.contains(known, key) then
      check.fail_field(key, "%s has no field '%s'%s", word, key, check.hint(key, known))
    end
  end
  return copy
end

function check.required(word, given, names)
  for _, name in ipairs(names) do
    if given[name] == nil then check.fail("%s lacks the field '%s'", word, name) end
  end
end

function check.wrong(word, field, value, expected)
  check.fail_field(field, "field '%s' of %s is %s, %s was expected", field, word, check.show(value), expected)
end

-- Text that generated headers carry in comments: one line, and no comment's end in it.
function check.text(word, field, value, default)
  if value == nil then return default end
  if type(value) ~= "string" then check.wrong(word, field, value, "a text") end
  if #value > 1000 then check.wrong(word, field, value, "a text of at most 1000 bytes") end
  local flaw = core.text_flaw(value)
  if flaw then check.wrong(word, field, value, "a text without " .. flaw) end
  if value:find("*/", 1, true) or value:find("/*", 1, true) or value:find("??/", 1, true) then
    check.wrong(word, field, value, "a text without comment marks")
  end
  for i = 1, #value do
    local byte = value:byte(i)
    if byte < 32 or byte == 127 or byte == 92 then
      check.wrong(word, field, value, "one line without control characters or backslashes")
    end
  end
  return value
end

local function is_identifier(value)
  if type(value) ~= "string" or #value == 0 or #value > 60 then return false end
  for i = 1, #value do
    local c = value:sub(i, i)
    local letter = c >= "a" and c <= "z" or c >= "A" and c <= "Z" or c == "_"
    if not letter and not (i > 1 and c >= "0" and c <= "9") then return false end
  end
  return true
end

function check.identifier(word, field, value)
  if not is_identifier(value) then
    check.wrong(word, field, value, "a name of letters, digits and _ (at most 60)")
  end
  return value
end

-- `which` says which number of the field it is, where the field has several.
function check.integer(word, field, value, least, most, which)
  local whole = math.type(value) == "integer" and value or math.type(value) == "float" and math.tointeger(value)
  if not whole or whole < least or whole > most then
    check.wrong(word, field, value, string.format("a whole number from %d to %d%s", least, most, which or ""))
  end
  return whole
end

function check.positive(word, field, value)
  if type(value) ~= "number" or not (value > 0 and value < math.huge) then
    check.wrong(word, field, value, "a positive number")
  end
  return value
end

-- A list 1..n without holes, other keys and a metatable, as a copy: a spec cannot change what was checked.
function check.list(word, field, value, what)
  if type(value) ~= "table" then check.wrong(word, field, value, "a list of " .. what) end
  if getmetatable(value) ~= nil then
    check.fail_field(field, "field '%s' of %s has a metatable, a plain list of %s was expected", field, word, what)
  end
  local copy, count = {}, rawlen(value)
  for key, entry in pairs(value) do -- numbers come first and ascend
    if math.type(key) ~= "integer" or key ~= #copy + 1 then
      check.wrong(word, field, value, "a list of " .. what)
    end
    copy[key] = entry
  end
  if #copy ~= count then check.wrong(word, field, value, "a list of " .. what) end
  return copy
end

-- What operands and inputs say of themselves, added to `declared`, of which there are `most` of that kind at the most.
function check.declare(kind, word, given, declared, most)
  local name = check.identifier(word, "name", given.name)
  if check.sealed then
    check.fail("%s '%s' is declared inside a function that pe.encoding calls; expected before it", kind, name)
  end
  for _, other in ipairs(declared) do
    if other.name == name then check.fail_field("name", "%s '%s' is declared twice", kind, name) end
  end
  if #declared == most then check.fail("a spec may have %d %ss", most, kind) end
  local item = {
    name = name,
    index = #declared,
    doc = check.text(word, "doc", given.doc),
    units = check.text(word, "units", given.units, "1"),
    source = check.text(word, "source", given.source, ""),
    test_scale = given.test_scale == nil and 1.0 or check.positive(word, "test_scale", given.test_scale),
    line = core.line(),
  }
  declared[#declared + 1] = item
  return item
end

return check
