-- dense: blocks of b channels that turn by exp of learned skew b x b matrices, and changes of basis.
--
-- A skew operand holds raw matrices F in its last two dimensions, and says how A is made of F. A spec sees a
-- matrix of it as an opaque value, which only `generators` and pe.cayley take.
local core = ...
local algebra = core.include "algebra"
local check = core.include "check"
local operands = core.include "operands"
local dense = {}

---- blocks ----

local Block = { __metatable = "block" }
local blocks = setmetatable({}, { __mode = "k" })

-- { size = b, dense = true, map = what is made of the matrix (DENSE_MAPS), is_f64 = whether in float64 }, or nil for
-- what is no dense block.
function dense.block(value) return type(value) == "table" and blocks[value] or nil end

function dense.dense(b, fields)
  local size = math.type(b) and math.tointeger(b)
  if not size or size < 2 or size > core.limits.block then
    check.fail("pe.dense(%s): a number of channels from 2 to %d was expected", check.show(b), core.limits.block)
  end
  fields = fields == nil and {} or fields
  fields = check.fields("pe.dense", fields, { "prepare" })
  local prepare = fields.prepare == nil and "float32" or fields.prepare
  if prepare ~= "float32" and prepare ~= "float64" then
    check.wrong("pe.dense", "prepare", prepare, "\"float32\" or \"float64\"")
  end
  local block = setmetatable({}, Block)
  blocks[block] = { size = size, dense = true, map = "exp", is_f64 = prepare == "float64" }
  return block
end

---- generators ----

local function show(value)
  return algebra.parts(value) and "a bivector" or operands.show(value)
end

-- The generator of an axis: { operand, rule, rows, offsets } of values by head and block. place(k) names the block of
-- values[k] in messages, source is the spec's function that gave them, or nil.
function dense.generator(axis, size, values, rows, place, source)
  local function fail(message, ...)
    if source then check.fail_in(source, message, ...) end
    check.fail_field("generators", message, ...)
  end
  local first, offsets = nil, {}
  for k = 1, #values do
    local matrix = operands.matrix(values[k])
    if not matrix then
      fail("the generator of axis '%s' is %s in %s; a matrix of pe.learned.skew was expected for a dense block",
        axis, show(values[k]), place(k))
    end
    first = first or matrix
    if matrix.operand ~= first.operand then
      fail("the generator of axis '%s' is of operand '%s' in %s and of '%s' in %s; one operand was expected",
        axis, matrix.operand.name, place(k), first.operand.name, place(1))
    end
    offsets[k] = matrix.offset
  end
  if first.operand.skew.size ~= size then
    fail("the generator of axis '%s' is of operand '%s', whose matrices are %d x %d; " ..
      "%d x %d was expected for pe.dense(%d)",
      axis, first.operand.name, first.operand.skew.size, first.operand.skew.size, size, size, size)
  end
  return { operand = first.operand.index, rule = first.operand.skew.rule, rows = rows, offsets = offsets }
end

---- changes of basis ----

local Basis = { __metatable = "basis" }
local bases = setmetatable({}, { __mode = "k" })

local function new_basis(kind, operand)
  local basis = setmetatable({}, Basis)
  bases[basis] = { kind = kind, operand = operand }
  return basis
end

-- The output stays in the basis in which the generators of a block are plane rotations.
dense.schur = new_basis "schur"

-- x -> (I - A)(I + A)^-1 x on the whole head, A of a skew operand.
function dense.cayley(operand)
  if not operands.is(operand) or not operands.skew(operand) then
    check.fail("pe.cayley(%s): an operand of pe.learned.skew was expected", show(operand))
  end
  return new_basis("cayley", operand)
end

local WORD = "pe.encoding"

-- What `basis` says: schur, a boolean, and the matrix of the change of basis or nil.
function dense.basis(given, block, head_dim, heads)
  if given == nil then return false, nil end
  local basis = type(given) == "table" and bases[given]
  if not basis then check.wrong(WORD, "basis", given, "pe.schur or pe.cayley(operand)") end
  if basis.kind == "schur" then
    if not block.dense then check.fail_field("basis",
      "pe.schur is for blocks of pe.dense, whose generators have a basis of their own") end
    return true, nil
  end
  local operand = operands.skew(basis.operand)
  local size = operand.skew.size
  if size ~= head_dim then
    check.fail_field("basis", "operand '%s' holds %d x %d matrices, a change of basis of the head is %d x %d",
      operand.name,
      size, size, head_dim, head_dim)
  end
  local offsets = {}
  for _, dimension in ipairs(operand.leading) do
    if dimension ~= "heads" or #operand.leading > 1 then
      check.fail_field("basis",
        "operand '%s' as a change of basis has a dimension of %s; none, or \"heads\" alone was expected",
        operand.name, dimension)
    end
  end
  local rows = #operand.leading == 0 and 1 or heads
  for head = 0, rows - 1 do offsets[head + 1] = head * size * size end
  return false, { operand = operand.index, rule = operand.skew.rule, rows = rows, offsets = offsets }
end

return dense
