-- operands: learned tensors that a kernel is given at each call.
--
-- An operand is declared before the sizes of its dimensions are known; pe.encoding resolves them and
-- then calls the spec's functions, inside which operand(axis, head, block, ...) is one element.
local core = ...
local check = core.include "check"
local initial = core.include "initial"
local remedy = core.include "remedy"
local operands = {}

local Operand = { __metatable = "operand" }
local hidden = setmetatable({}, { __mode = "k" }) -- what the tables that a spec holds stand for
local declared = {} -- in order
local sizes_of = nil -- of the encoding being evaluated: axes, heads, blocks, axis index by name

function operands.is(value) return type(value) == "table" and hidden[value] ~= nil end
function operands.name(handle) return hidden[handle].name end
-- What a skew operand is: index, name, leading dimensions, skew = { size, rule }; nil for other operands.
function operands.skew(handle) return hidden[handle].skew and hidden[handle] or nil end

-- A matrix of a skew operand, as a spec holds it: { operand, offset }; nil for anything else.
local Matrix = { __metatable = "matrix" }
local matrices = setmetatable({}, { __mode = "k" })
function operands.matrix(value) return type(value) == "table" and matrices[value] or nil end

-- A value as an error message shows it where a generator was expected.
function operands.show(value)
  if operands.matrix(value) then return "a skew matrix (for blocks of pe.dense)" end
  if not operands.is(value) then return check.show(value) end
  local kind = hidden[value].skew and "skew matrices (for blocks of pe.dense)" or "numbers"
  return string.format("operand '%s' of %s", hidden[value].name, kind)
end

remedy.number(Matrix, operands.matrix,
  function() check.fail "arithmetic on a skew matrix; its factor of a block and axis is what 'phase' gives" end)

-- How an element is read: w(axis, head, i, k), of the dimensions that take an index.
local INDICES = { axes = "axis", heads = "head", blocks = "i" }
local function reading(operand)
  local names, letter = {}, string.byte "j"
  for i, dimension in ipairs(operand.leading or operand.dimensions) do
    names[i] = INDICES[dimension]
    if not names[i] then letter, names[i] = letter + 1, string.char(letter + 1) end
  end
  return string.format("%s(%s)", operand.name, check.join(names))
end

remedy.number(Operand, operands.is, function(handle)
  local operand = hidden[handle]
  local one = operand.skew and "one of its matrices" or "an element of it"
  check.fail("arithmetic on operand '%s', a whole tensor; %s is %s", operand.name, one, reading(operand))
end)

Operand.__index = core.word(function(handle)
  local operand = hidden[handle]
  check.fail("operand '%s' is read with parentheses: %s", operand.name, reading(operand))
end)

local FIELDS = { "name", "shape", "doc", "units", "source", "init", "test_scale" }

local function check_shape(word, shape, least, most)
  local dimensions = check.list(word, "shape", shape, "dimensions")
  if #dimensions < least or #dimensions > most then
    check.wrong(word, "shape", shape, string.format("%d to %d dimensions", least, most))
  end
  for i, size in ipairs(dimensions) do
    if size ~= "axes" and size ~= "heads" and size ~= "blocks" then
      if math.type(size) ~= "integer" or size < 1 or size > 1 << 20 then
        check.fail_field("shape",
          "dimension %d of 'shape' is %s; \"axes\", \"heads\", \"blocks\" or a positive whole number was expected", i,
          check.show(size))
      end
    end
  end
  return dimensions
end

local function declare(word, given, dimensions)
  local operand = check.declare("operand", word, given, declared, core.limits.operands)
  operand.dimensions = dimensions
  operand.init, operand.initial = initial.read(word, given.init, operand)
  local handle = setmetatable({}, Operand)
  hidden[handle] = operand
  return handle, operand
end

function operands.learned(given)
  local word = "pe.learned"
  given = check.fields(word, given, FIELDS)
  check.required(word, given, { "name", "shape", "doc" })
  return (declare(word, given, check_shape(word, given.shape, 1, core.limits.rank)))
end

-- skew(b, { shape = leading dimensions, from = "upper" | "difference", ... }): raw b x b matrices, made skew.
local SKEW_FIELDS = { "name", "shape", "from", "doc", "units", "source", "init", "test_scale" }

function operands.learned_skew(b, given)
  local word = "pe.learned.skew"
  local size = math.type(b) and math.tointeger(b)
  if not size or size < 2 or size > core.limits.head_dim then
    check.fail("pe.learned.skew(%s, ...): a size of its matrices from 2 to %d was expected", check.show(b),
      core.limits.head_dim)
  end
  given = check.fields(word, given, SKEW_FIELDS)
  check.required(word, given, { "name", "shape", "from", "doc" })
  if given.from ~= "upper" and given.from ~= "difference" then
    check.wrong(word, "from", given.from, "\"upper\" (triu(F, 1) - transpose) or \"difference\" (F - transpose)")
  end
  local leading = check_shape(word, given.shape, 0, core.limits.rank - 2)
  local dimensions = { table.unpack(leading) }
  dimensions[#dimensions + 1], dimensions[#dimensions + 2] = size, size
  local handle, operand = declare(word, given, dimensions)
  operand.leading, operand.skew = leading, { size = size, rule = given.from }
  return handle
end

-- Whether functions of pairs are being traced, which alone read operands at computed indices and have sums.
function operands.computes() return sizes_of ~= nil and sizes_of.computed end

-- operand(index, ...): one element, indices from 0 in the order of the shape; an axis also by name. For a skew operand,
-- whose last two dimensions take no index, it is a matrix. Where elements are wanted at computed indices, in a bias, an
-- index may be an expression: whole numbers, of which those beyond the ends count as the end, and NaN as 0.
Operand.__call = core.word(function(handle, ...)
  local operand = hidden[handle]
  if not sizes_of then
    check.fail("operand '%s' has elements only inside the functions that pe.encoding calls", operand.name)
  end
  local given = { ... }
  local indexed = operand.leading or operand.dimensions
  if #given ~= #indexed then
    check.fail("operand '%s' takes %d indices (%s), it was given %d", operand.name, #indexed, check.join(indexed),
      #given)
  end
  if operand.misfit then
    check.fail("operand '%s' is %s; an operand of each part was expected", operand.name, operand.misfit)
  end
  operand.is_read = true
  local offset, computed = 0, nil
  local places, step = 1, 1 -- of the computed part: what it counts to, and what it is a multiple of
  for i = 1, #indexed do
    local size = operand.sizes[i]
    local index = given[i]
    if operand.dimensions[i] == "axes" then index = sizes_of.axis[index] or index end
    if core.is_traced(index) then
      -- 0 stands first: of 0 and a NaN it is the larger, so that a NaN counts as 0 on every machine.
      computed = (computed or 0) * size + core.arithmetic.max(0, core.arithmetic.min(index, size - 1))
      index = 0
    else
      computed = computed and computed * size
    end
    places = computed and places * size or 1
    step = core.is_traced(given[i]) and 1 or step * size
    index = type(index) == "number" and math.tointeger(index)
    if not index or index < 0 or index >= size then
      local of_axis = sizes_of.axis[given[i]] and "; names of axes are indices of a dimension \"axes\"" or ""
      check.fail("operand '%s': index %d (%s) is %s, 0 to %d was expected%s", operand.name, i,
        operand.dimensions[i], check.show(given[i]), size - 1, of_axis)
    end
    offset = offset * size + index
  end
  if computed then
    if not sizes_of.computed or operand.skew then
      check.fail("operand '%s' is read at a computed index, which only a bias may do", operand.name)
    end
    places = places // (step & -step) -- a power of 2 takes no digits
    if places > 1 << 24 then
      check.fail("operand '%s' is read at a computed index of %d places; expected at most 2^24, since a float32 tells "
        .. "no more apart", operand.name, places)
    end
    return core.element(operand.index, offset, computed, operand.elements - 1)
  end
  if not operand.skew then return core.operand(operand.index, offset) end
  local matrix = setmetatable({}, Matrix)
  matrices[matrix] = { operand = operand, offset = offset * operand.skew.size * operand.skew.size }
  return matrix
end)

local FIELD_TEXT = { phase = "phase", generators = "generator", weights = "weight", at = "place between two rotors" }

-- The value of an operand whose dimensions are named: what `phase = freqs` and `generators = A` mean.
function operands.element(handle, axis, i, head, field)
  local operand = hidden[handle]
  local by_name = { axes = axis, heads = head, blocks = i }
  local indices = {}
  for k, dimension in ipairs(operand.leading or operand.dimensions) do
    indices[k] = by_name[dimension]
    if indices[k] == nil then
      check.fail_field(field,
        "operand '%s' as a %s has a dimension of %s; only axes, heads and blocks were expected",
        operand.name, FIELD_TEXT[field], dimension)
    end
  end
  return handle(table.unpack(indices))
end

-- How sizes differ from those that another part of the head has read an operand with; nil: they do not.
local function misfit(dimensions, before, now)
  for i, dimension in ipairs(dimensions) do
    if before[i] ~= now[i] then
      return string.format("of %d %s where another part read it, which is of %d here", before[i], dimension, now[i])
    end
  end
end

-- Fixes the sizes of all operands; elements exist until operands.close(). computed: at computed indices, too.
function operands.open(axes, heads, blocks, computed)
  sizes_of = { axes = #axes, heads = heads, blocks = blocks, axis = {}, computed = computed }
  for i, name in ipairs(axes) do sizes_of.axis[name] = i - 1 end
  for _, operand in ipairs(declared) do
    local sizes, elements = {}, 1
    for i, dimension in ipairs(operand.dimensions) do
      sizes[i] = sizes_of[dimension] or dimension
      elements = elements * sizes[i]
      if elements > 1 << 28 then check.fail("operand '%s' has more than 2^28 elements", operand.name) end
    end
    operand.misfit = operand.is_read and misfit(operand.dimensions, operand.sizes, sizes) or nil
    if not operand.is_read then operand.sizes, operand.elements = sizes, elements end
  end
end

function operands.close() sizes_of = nil end

-- For core.finish. axes: their names.
function operands.list(axes)
  local list = {}
  for i, operand in ipairs(declared) do
    local dimensions = {}
    for k, dimension in ipairs(operand.dimensions) do dimensions[k] = tostring(dimension) end
    list[i] = {
      name = operand.name, doc = operand.doc, units = operand.units, source = operand.source, init = operand.init,
      initial = initial.data(operand, axes), test_scale = operand.test_scale, line = operand.line,
      sizes = operand.sizes, dimensions = dimensions,
    }
  end
  return list
end

return operands
