-- inputs: tensors that a kernel is given with a row for each query token and head, beside q.
--
-- Declared like operands; inside the functions that pe.encoding calls, input(i) is element i of the query's row.
local core = ...
local check = core.include "check"
local remedy = core.include "remedy"
local inputs = {}

local Input = { __metatable = "input" }
local hidden = setmetatable({}, { __mode = "k" }) -- what the tables that a spec holds stand for
local declared = {} -- in order
local are_open = false

local FIELDS = { "name", "shape", "doc", "units", "source", "test_scale" }

function inputs.input(given)
  local word = "pe.input"
  given = check.fields(word, given, FIELDS)
  check.required(word, given, { "name", "shape", "doc" })
  local shape = check.list(word, "shape", given.shape, "numbers")
  if #shape > 1 then
    check.wrong(word, "shape", given.shape, "{} or { size }: what there is of it for each query token and head")
  end
  local size = shape[1] and check.integer(word, "shape", shape[1], 1, core.limits.terms) or 0
  local input = check.declare("input", word, given, declared, core.limits.inputs)
  input.size = size
  local handle = setmetatable({}, Input)
  hidden[handle] = input
  return handle
end

-- input(i), or input() of one without a dimension.
Input.__call = core.word(function(handle, ...)
  local input = hidden[handle]
  if not are_open then
    check.fail("input '%s' has elements only inside the functions that pe.encoding calls", input.name)
  end
  local given = { ... }
  local wanted = input.size == 0 and 0 or 1
  if #given ~= wanted then
    check.fail("input '%s' takes %d indices, it was given %d", input.name, wanted, #given)
  end
  if wanted == 0 then return core.input(input.index, 0) end
  local index = type(given[1]) == "number" and math.tointeger(given[1])
  if not index or index < 0 or index >= input.size then
    check.fail("input '%s': the index is %s, 0 to %d was expected", input.name, check.show(given[1]), input.size - 1)
  end
  return core.input(input.index, index)
end)

local function is_input(value) return type(value) == "table" and hidden[value] ~= nil end
local function reading(input) return input.name .. (input.size == 0 and "()" or "(i)") end

remedy.number(Input, is_input, function(handle)
  local input = hidden[handle]
  check.fail("arithmetic on input '%s', a whole tensor; an element of the query's row is %s", input.name,
    reading(input))
end)

Input.__index = core.word(function(handle)
  local input = hidden[handle]
  check.fail("input '%s' is read with parentheses: %s", input.name, reading(input))
end)

function inputs.open() are_open = true end
function inputs.close() are_open = false end
-- For core.finish.
function inputs.list() return declared end

return inputs
