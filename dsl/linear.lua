-- linear: blocks of channels that are multiplied by a matrix whose entries the description writes.
local core = ...
local check = core.include "check"
local place = core.include "place"
local linear = {}

local MOST = 4 -- channels of a block
local Block = { __metatable = "block" }
local blocks = setmetatable({}, { __mode = "k" })

-- What algebra.block gives of vectors of as many channels, or nil for what is no such block.
function linear.block(value) return type(value) == "table" and blocks[value] or nil end

function linear.linear(n)
  local size = math.type(n) and math.tointeger(n)
  if not size or size < 1 or size > MOST then
    check.fail("pe.linear(%s): a number of channels from 1 to %d was expected", check.show(n), MOST)
  end
  local masks, signs = {}, {}
  for i = 1, size do masks[i], signs[i] = 1 << (i - 1), 1 end
  local block = setmetatable({}, Block)
  blocks[block] = { algebra = { size, 0, 0 }, size = size, masks = masks, signs = signs }
  return block
end

-- Fields that say what a rotor is made of.
local OF_ROTORS = {
  "generators", "combine", "phase", "amplitude", "position", "precision", "basis", "sides", "pre",
}

function linear.check_fields(given, word)
  check.required(word, given, { "matrix" })
  for _, field in ipairs(OF_ROTORS) do
    if given[field] ~= nil then
      check.fail_field(field, "field '%s' of %s goes with rotors; a block of pe.linear is multiplied by its 'matrix', "
        .. "in which all of it can be written", field, word)
    end
  end
end

-- The entries of what function(r, block, head) returned, row by row.
local function entries_of(matrix, size, f, where)
  if type(matrix) ~= "table" or getmetatable(matrix) ~= nil or rawlen(matrix) ~= size then
    check.fail_in(f, "matrix is %s in %s, a list of %d rows was expected", check.show(matrix), where, size)
  end
  local entries = {}
  for i = 1, size do
    local row = matrix[i]
    if type(row) ~= "table" or getmetatable(row) ~= nil or rawlen(row) ~= size then
      check.fail_in(f, "row %d of the matrix is %s in %s, a list of %d entries was expected", i, check.show(row), where,
        size)
    end
    for j = 1, size do
      if not core.is_expression(row[j]) then
        check.fail_in(f, "entry %d of row %d of the matrix is %s in %s, a finite number or an expression was expected",
          j, i, check.show(row[j]), where)
      end
      entries[#entries + 1] = row[j]
    end
  end
  return entries
end

-- One side's entries as expressions of all blocks. tools: for_blocks, place_of and merge of encoding.lua.
local function side_of(f, size, axes, heads, count, word, tools)
  if type(f) ~= "function" then
    check.wrong(word, "matrix", f, "function(r, block, head), or a table { q = ..., k = ... } of two")
  end
  local values, rows = tools.for_blocks(f, place.coordinates_of("position", axes), heads, count)
  local lists, merged = {}, {}
  for n, value in ipairs(values) do lists[n] = entries_of(value, size, f, tools.place_of(n, rows, count)) end
  if #lists ~= rows * count then check.fail_in(f, "matrix returns nothing in %s", tools.place_of(1, rows, count)) end
  for e = 1, size * size do
    local parts = {}
    for n = 1, #lists do parts[n] = lists[n][e] end
    merged[e] = tools.merge(parts, rows,
      string.format("entry %d of row %d of the matrix", (e - 1) % size + 1, (e - 1) // size + 1), f)
  end
  return merged
end

-- The field `matrix`: entries of q's and of k's, one list where they are the same.
function linear.matrices_of(given, size, axes, heads, count, word, tools)
  if type(given) ~= "table" then
    local both = side_of(given, size, axes, heads, count, word, tools)
    return { both, both }
  end
  local sides = check.fields("matrix", given, { "q", "k" })
  check.required("matrix", sides, { "q", "k" })
  return { side_of(sides.q, size, axes, heads, count, word, tools),
    side_of(sides.k, size, axes, heads, count, word, tools) }
end

-- Asked when the options are known.
function linear.check_direction(matrices, inverse)
  if matrices and inverse then
    check.fail_field("block", "matrices of pe.linear are not turned back: 'inverse' is for rotors; a description of "
      .. "its own, whose 'matrix' is the inverse, was expected")
  end
end

return linear
