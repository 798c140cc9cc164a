-- operands: learned tensors that a kernel is given at each call.
--
-- An operand is declared before the sizes of its dimensions are known; pe.encoding resolves them and
-- then calls the spec's functions, inside which operand(axis, head, block, ...) is one element.
local core = ...
local check = core.include "check"
local operands = {}

local Operand = { __metatable = "operand" }
local hidden = setmetatable({}, { __mode = "k" }) -- what the tables that a spec holds stand for
local declared = {} -- in order
local sizes_of = nil -- of the encoding being evaluated: axes, heads, blocks, axis index by name

function operands.is(value) return type(value) == "table" and hidden[value] ~= nil end

local FIELDS = { "name", "shape", "doc", "units", "source", "init", "test_scale" }

local function check_shape(shape)
  local rank = check.list("pe.learned", "shape", shape, "dimensions")
  if rank < 1 or rank > core.limits.rank then
    check.wrong("pe.learned", "shape", shape, string.format("1 to %d dimensions", core.limits.rank))
  end
  local copy = {}
  for i, size in ipairs(shape) do
    if size ~= "axes" and size ~= "heads" and size ~= "blocks" then
      if math.type(size) ~= "integer" or size < 1 or size > 1 << 20 then
        check.fail_field("shape",
          "dimension %d of 'shape' is %s; \"axes\", \"heads\", \"blocks\" or a positive whole number was expected", i,
          check.show(size))
      end
    end
    copy[i] = size
  end
  return copy
end

function operands.learned(given)
  local word = "pe.learned"
  check.fields(word, given, FIELDS)
  check.required(word, given, { "name", "shape", "doc" })
  local name = check.identifier(word, "name", given.name)
  for _, other in ipairs(declared) do
    if other.name == name then check.fail_field("name", "operand '%s' is declared twice", name) end
  end
  if #declared == 32 then check.fail("a spec may have 32 operands") end
  local operand = {
    name = name,
    index = #declared,
    dimensions = check_shape(given.shape),
    doc = check.text(word, "doc", given.doc),
    units = check.text(word, "units", given.units, "1"),
    source = check.text(word, "source", given.source, ""),
    init = check.text(word, "init", given.init, ""),
    test_scale = given.test_scale == nil and 1.0 or check.positive(word, "test_scale", given.test_scale),
    line = core.line(),
  }
  declared[#declared + 1] = operand
  local handle = setmetatable({}, Operand)
  hidden[handle] = operand
  return handle
end

-- operand(index, ...): one element, indices from 0 in the order of the shape; an axis also by name.
Operand.__call = core.word(function(handle, ...)
  local operand = hidden[handle]
  if not sizes_of then
    check.fail("operand '%s' has elements only inside the functions that pe.encoding calls", operand.name)
  end
  local given = { ... }
  if #given ~= #operand.dimensions then
    check.fail("operand '%s' takes %d indices (%s), it was given %d", operand.name, #operand.dimensions,
      check.join(operand.dimensions), #given)
  end
  local offset = 0
  for i, size in ipairs(operand.sizes) do
    local index = given[i]
    if operand.dimensions[i] == "axes" then index = sizes_of.axis[index] or index end
    index = type(index) == "number" and math.tointeger(index)
    if not index or index < 0 or index >= size then
      check.fail("operand '%s': index %d (%s) is %s, 0 to %d was expected", operand.name, i,
        operand.dimensions[i], check.show(given[i]), size - 1)
    end
    offset = offset * size + index
  end
  return core.operand(operand.index, offset)
end)

-- The value of an operand whose dimensions are named: what `phase = freqs` means.
function operands.element(handle, axis, i, head)
  local operand = hidden[handle]
  local by_name = { axes = axis, heads = head, blocks = i }
  local indices = {}
  for k, dimension in ipairs(operand.dimensions) do
    indices[k] = by_name[dimension]
    if indices[k] == nil then
      check.fail_field("phase",
        "operand '%s' as a phase has a dimension of %s; only axes, heads and blocks were expected",
        operand.name, dimension)
    end
  end
  return handle(table.unpack(indices))
end

-- Fixes the sizes of all operands; elements exist until operands.close().
function operands.open(axes, heads, blocks)
  sizes_of = { axes = #axes, heads = heads, blocks = blocks, axis = {} }
  for i, name in ipairs(axes) do sizes_of.axis[name] = i - 1 end
  for _, operand in ipairs(declared) do
    operand.sizes = {}
    local elements = 1
    for i, dimension in ipairs(operand.dimensions) do
      operand.sizes[i] = sizes_of[dimension] or dimension
      elements = elements * operand.sizes[i]
      if elements > 1 << 28 then check.fail("operand '%s' has more than 2^28 elements", operand.name) end
    end
  end
end

function operands.close() sizes_of = nil end

-- For core.finish.
function operands.list()
  local list = {}
  for i, operand in ipairs(declared) do
    local dimensions = {}
    for k, dimension in ipairs(operand.dimensions) do dimensions[k] = tostring(dimension) end
    list[i] = {
      name = operand.name, doc = operand.doc, units = operand.units, source = operand.source, init = operand.init,
      test_scale = operand.test_scale, line = operand.line, sizes = operand.sizes, dimensions = dimensions,
    }
  end
  return list
end

return operands
