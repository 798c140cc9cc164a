-- inputs: tensors that a kernel is given with a row for each token and head, beside q (of blocks of blades: or k; of
-- scores: or k, as `of` says), or with a number for each pair of a query and a key.
--
-- Declared like operands; inside the functions that pe.encoding calls, input(i) is element i of the token's row. In a
-- bias or a score the index may be an expression: whole numbers, of which those beyond the ends count as the end, and
-- NaN as 0.
local core = ...
local check = core.include "check"
local remedy = core.include "remedy"
local inputs = {}

local Input = { __metatable = "input" }
local hidden = setmetatable({}, { __mode = "k" }) -- what the tables that a spec holds stand for
local declared = {} -- in order
local are_open, are_wide, are_of_pairs, are_of_keys = false, false, false, false

local PAIR = -1 -- a size: as many numbers as there are keys

local FIELDS = { "name", "shape", "of", "doc", "units", "source", "test_scale" }

function inputs.input(given)
  local word = "pe.input"
  given = check.fields(word, given, FIELDS)
  check.required(word, given, { "name", "shape", "doc" })
  local shape = check.list(word, "shape", given.shape, "numbers")
  if #shape > 1 then
    check.wrong(word, "shape", given.shape, "{} or { size }: what there is of it for each token and head")
  end
  if given.of ~= nil and given.of ~= "query" and given.of ~= "key" and given.of ~= "pair" then
    check.wrong(word, "of", given.of, "\"query\" or \"key\", whose tokens have a row of it, or \"pair\"")
  end
  if given.of == "pair" and #shape > 0 then
    check.wrong(word, "shape", given.shape, "{}, since a pair has one number,")
  end
  local size = shape[1] and check.integer(word, "shape", shape[1], 1, core.limits.terms) or 0
  local input = check.declare("input", word, given, declared, core.limits.inputs)
  input.size = given.of == "pair" and PAIR or size
  input.of_keys = given.of == "key"
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
  if (input.of_keys or input.size == PAIR) and not (are_of_pairs or input.of_keys and are_of_keys) then
    check.fail("input '%s' is of %s, which %s of attention (role = \"pairwise\") read; elsewhere of = \"query\" was "
      .. "expected", input.name, input.of_keys and "keys" or "pairs", are_of_keys and "scores" or "scores and biases")
  end
  local given = { ... }
  local wanted = input.size <= 0 and 0 or 1
  if #given ~= wanted then
    check.fail("input '%s' takes %d indices, it was given %d", input.name, wanted, #given)
  end
  local is_of_pairs = are_of_pairs or input.of_keys
  if input.is_read and input.is_of_pairs ~= is_of_pairs then
    check.fail("input '%s' is read by the pe.polynomial and by the score, which take rows of their own; two inputs "
      .. "were expected", input.name)
  end
  input.is_read, input.is_of_pairs = true, is_of_pairs
  if wanted == 0 then return core.input(input.index, 0, are_wide) end
  if core.is_traced(given[1]) then
    if not are_of_pairs then
      check.fail("input '%s' is read at a computed index, which only a bias and a score may do", input.name)
    end
    -- 0 stands first: of 0 and a NaN it is the larger, so that a NaN counts as 0 on every machine.
    local inside = core.arithmetic.max(0, core.arithmetic.min(given[1], input.size - 1))
    return core.input_at(input.index, inside, input.size - 1)
  end
  local index = type(given[1]) == "number" and math.tointeger(given[1])
  if not index or index < 0 or index >= input.size then
    check.fail("input '%s': the index is %s, 0 to %d was expected", input.name, check.show(given[1]), input.size - 1)
  end
  return core.input(input.index, index, are_wide)
end)

local function is_input(value) return type(value) == "table" and hidden[value] ~= nil end
local function reading(input) return input.name .. (input.size <= 0 and "()" or "(i)") end

remedy.number(Input, is_input, function(handle)
  local input = hidden[handle]
  check.fail("arithmetic on input '%s', a whole tensor; an element of the token's row is %s", input.name,
    reading(input))
end)

Input.__index = core.word(function(handle)
  local input = hidden[handle]
  check.fail("input '%s' is read with parentheses: %s", input.name, reading(input))
end)

-- wide: what is computed of them is float64, as phases are; else float32. of_pairs: of a query and a key. of_keys: a
-- polynomial's, which reads a query and a key, each at known indices.
function inputs.open(wide, of_pairs, of_keys)
  are_open, are_wide, are_of_pairs, are_of_keys = true, wide or false, of_pairs or false, of_keys or false
end
function inputs.close() are_open = false end
-- For core.finish.
function inputs.list() return declared end

return inputs
