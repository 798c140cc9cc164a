-- encoding: pe.encoding checks a description, calls its functions for every head and block, and hands
-- the result to the compiler.
local core = ...
local check = core.include "check"
local inputs = core.include "inputs"
local models = core.include "models"
local additive = core.include "additive"
local algebra = core.include "algebra"
local dense = core.include "dense"
local linear = core.include "linear"
local operands = core.include "operands"
local options = core.include "options"
local pairwise = core.include "pairwise"
local place = core.include "place"
local polynomial = core.include "polynomial"
local pre = core.include "pre"
local rotors = core.include "rotors"

local WORD = "pe.encoding"
local FIELDS = {
  "name", "doc", "axes", "head_dim", "heads", "block", "layout", "span", "generators", "combine", "phase",
  "amplitude", "position", "precision", "products", "basis", "bias", "score", "sink", "add", "role", "value_dim",
  "scale", "values", "sides", "models", "parts", "pre", "matrix",
}
local PART_FIELDS = {
  "span", "axes", "block", "layout", "generators", "combine", "phase", "amplitude", "position", "precision",
  "products", "pre", "matrix",
}
local word = WORD -- of what is described: the whole, or a part of it
local encoding = {}

---- combine rules ----

local Combine = { __metatable = "combine" } -- pe.sum is a word of pairwise, too: pe.sum(n, f)
local rules = setmetatable({}, { __mode = "k" }) -- what the tables that a spec holds stand for

local function rule(kind, order)
  local combine = setmetatable({}, Combine)
  rules[combine] = { kind = kind, order = order }
  return combine
end

encoding.sum = rule "sum"
Combine.__call = core.word(function(combine, ...)
  if combine == encoding.sum then return pairwise.sum(...) end
  check.fail("pe.%s was called; only pe.sum(n, f) is a function, too", rules[combine].kind)
end)
encoding.mean = rule "mean"

-- A word, which is known again where it was not called.
local function ordered(kind)
  return core.word(function(order)
    return rule(kind, check.list("pe." .. kind, "order", order, "axes, leftmost first"))
  end)
end

encoding.product = ordered "product"
encoding.symmetric = ordered "symmetric"

-- The order of the axes as indices from 0.
local function combine_order(combine, axes, index_of)
  local order = {}
  for i = 1, #axes do order[i] = i - 1 end
  if combine.order == nil then return order end
  local seen = {}
  for i, axis in ipairs(combine.order) do
    if not index_of[axis] then
      check.fail_field("combine", "the order of pe.%s names the axis %s%s", combine.kind, check.show(axis),
        check.hint(axis, axes))
    end
    if seen[axis] then
      check.fail_field("combine", "the order of pe.%s names the axis '%s' twice", combine.kind, axis)
    end
    seen[axis], order[i] = true, index_of[axis] - 1
  end
  for _, axis in ipairs(axes) do
    if not seen[axis] then
      check.fail_field("combine", "the order of pe.%s misses the axis '%s'", combine.kind, axis)
    end
  end
  return order
end

---- axes, span and layout ----

local function check_axes(axes)
  local names, index_of = check.list(word, "axes", axes, "names"), {}
  if #names < 1 or #names > core.limits.axes then
    check.wrong(word, "axes", axes, string.format("a list of 1 to %d names", core.limits.axes))
  end
  for i, name in ipairs(names) do
    check.identifier(word, "axes", name)
    if index_of[name] then check.fail_field("axes", "the axis '%s' is named twice", name) end
    index_of[name] = i
  end
  return names, index_of
end

-- span = { first channel, count }: where the blocks lie in a head.
local function check_span(span, head_dim)
  if span == nil then return 0, head_dim end
  local numbers = check.list(word, "span", span, "two numbers { first, count }")
  if #numbers ~= 2 then check.wrong(word, "span", span, "a list { first channel, count }") end
  local first = check.integer(word, "span", numbers[1], 0, head_dim, ", the first of { first channel, count },")
  return first, check.integer(word, "span", numbers[2], 0, head_dim - first, ", the count of { first channel, count },")
end

-- Channels by component and block: channels[component * blocks + block + 1].
local function lay_out(layout, block, blocks, first, least, most)
  local size = block.size
  local place = layout
  if layout == nil or layout == "interleaved" then
    place = function(component, i) return first + i * size + component end
  elseif layout == "split" then
    place = function(component, i) return first + component * blocks + i end
  elseif type(layout) ~= "function" then
    check.wrong(word, "layout", layout, "\"interleaved\", \"split\" or function(component, block)")
  end
  local channels, taken = {}, {}
  for component = 0, size - 1 do
    for i = 0, blocks - 1 do
      local channel = place(component, i)
      local whole = type(channel) == "number" and math.tointeger(channel)
      if not whole or whole < least or whole > most then
        check.fail_in(layout, "layout puts component %d of block %d at %s, a channel from %d to %d was expected",
          component, i, check.show(channel), least, most)
      end
      if taken[whole] then
        check.fail_in(layout, "layout puts component %d of block %d at channel %d, where another is", component, i,
          whole)
      end
      taken[whole] = true
      channels[#channels + 1] = whole
    end
  end
  return channels
end

---- what differs from block to block ----

-- Calls f(axis, i, head) for every head and block: values[head * blocks + i + 1], and the number of heads
-- they are for: 1 where f does not ask for the head.
local function for_blocks(f, axis, heads, blocks)
  local rows = core.parameters(f) < 3 and 1 or heads
  local values = {}
  for head = 0, rows - 1 do
    for i = 0, blocks - 1 do values[#values + 1] = f(axis, i, head) end
  end
  return values, rows
end

local function place_of(index, heads, blocks)
  local i = (index - 1) % blocks
  if heads == 1 then return string.format("block %d", i) end
  return string.format("block %d of head %d", i, (index - 1) // blocks)
end

-- One expression of all blocks. what: for messages.
local function merge(parts, rows, what, source)
  local merged, head, block = core.merge(parts, rows)
  if not merged then
    local odd = rows == 1 and string.format("block %d", block) or string.format("block %d of head %d", block, head)
    check.fail_in(source,
      "%s has another form in %s than in block 0: the same operations on other numbers were expected", what, odd)
  end
  return merged
end

local function phase_of(phase, axis, heads, blocks)
  local what = string.format("phase of axis '%s'", axis)
  local f = phase
  if operands.is(phase) then
    if operands.skew(phase) then
      check.fail_field("phase", "phase is operand '%s', which holds skew matrices; numbers were expected",
        operands.name(phase))
    end
    f = function(a, i, head) return operands.element(phase, a, i, head, "phase") end
  elseif type(phase) == "number" then
    f = function(_, _) return phase end
  elseif type(phase) ~= "function" then
    check.wrong(word, "phase", phase, "function(axis, block, head), a number or a learned operand")
  end
  local values, rows = for_blocks(f, axis, heads, blocks)
  for k = 1, rows * blocks do
    if not core.is_expression(values[k]) then
      local message = string.format("%s is %s in %s, a finite number of radians per unit of position was expected",
        what, check.show(values[k]), place_of(k, rows, blocks))
      if type(phase) == "function" then core.fail(message, phase) end
      core.fail_field("phase", message)
    end
  end
  return merge(values, rows, what, phase)
end

-- The generator of an axis: blades ascending and merged coefficients.
local function generator_of(generator, axis, heads, blocks, block)
  local source = generator
  local f = generator
  if algebra.parts(generator) then
    f = function(_, _) return generator end
  elseif type(generator) ~= "function" then
    check.fail_field("generators",
      "the generator of axis '%s' is %s; a bivector was expected (pe.turn, pe.quaternion, pe.bivector)", axis,
      operands.show(generator))
  end
  local values, rows = for_blocks(f, axis, heads, blocks)
  local used = {}
  for k = 1, rows * blocks do
    local parts = algebra.parts(values[k])
    if not parts then
      check.fail_in(source, "the generator of axis '%s' is %s in %s, a bivector was expected", axis,
        operands.show(values[k]), place_of(k, rows, blocks))
    end
    for mask, coefficient in pairs(parts) do
      if not core.is_expression(coefficient) then
        check.fail_in(source,
          "the generator of axis '%s' has the coefficient %s at %s in %s, a finite number was expected", axis,
          check.show(coefficient), algebra.name_of(mask), place_of(k, rows, blocks))
      end
      used[mask] = true
    end
  end
  local masks, coefficients = {}, {}
  for mask in pairs(used) do -- ascending
    local parts = {}
    for k = 1, rows * blocks do parts[k] = algebra.parts(values[k])[mask] or 0 end
    masks[#masks + 1] = mask
    coefficients[#coefficients + 1] =
      merge(parts, rows, string.format("%s in the generator of axis '%s'", algebra.name_of(mask), axis), source)
  end
  local misfit = algebra.misfit(block, masks)
  if misfit then
    local message = string.format("the generator of axis '%s' %s", axis, misfit)
    if type(source) == "function" then core.fail(message, source) end
    core.fail_field("generators", message)
  end
  return { blades = masks, coefficients = coefficients }
end

-- The generators of a dense block: a matrix of a skew operand per head and block.
local function matrices_of(generator, axis, heads, blocks, block)
  local f = generator
  if operands.is(generator) and operands.skew(generator) then
    f = function(a, i, head) return operands.element(generator, a, i, head, "generators") end
  elseif type(generator) ~= "function" then
    f = function(_, _) return generator end -- refused with the message of any other wrong value
  end
  local values, rows = for_blocks(f, axis, heads, blocks)
  local function place(k) return place_of(k, rows, blocks) end
  return dense.generator(axis, block.size, values, rows, place, type(generator) == "function" and generator or nil)
end

-- generators: one for all axes, a table by axis, or a function of axis, block and head.
local function generator_table(generators, axes, index_of)
  if algebra.parts(generators) or operands.is(generators) or type(generators) == "function" then
    local by_axis = {}
    for _, axis in ipairs(axes) do by_axis[axis] = generators end
    return by_axis
  end
  if type(generators) ~= "table" then
    check.wrong(word, "generators", generators,
      "a bivector or skew operand, a table of them by axis, or function(axis, block, head)")
  end
  if getmetatable(generators) ~= nil then check.wrong(word, "generators", generators, "a table without a metatable") end
  local by_axis = {}
  for axis, generator in pairs(generators) do
    by_axis[axis] = generator
    if not index_of[axis] then
      check.fail_field("generators", "a generator is given for the axis %s%s", check.show(axis), check.hint(axis, axes))
    end
  end
  for _, axis in ipairs(axes) do
    if by_axis[axis] == nil then check.fail_field("generators", "the axis '%s' has no generator", axis) end
  end
  return by_axis
end

-- The coordinates that phases multiply, one an axis: of function(axis, r) each made of its own, of function(r) all made
-- of all (polar and spherical coordinates).
local function positions_of(map, axes)
  local mapped = {}
  if map == nil then
    for i = 1, #axes do mapped[i] = core.position(i - 1) end
    return mapped
  end
  if type(map) ~= "function" then check.wrong(word, "position", map, "function(axis, r) or function(r)") end
  local is_whole = core.parameters(map) == 1
  if is_whole then
    local given = map(place.coordinates_of("position", axes))
    if type(given) ~= "table" or getmetatable(given) ~= nil or rawlen(given) ~= #axes then
      check.fail_in(map, "position is %s; of function(r), a list of %d expressions, one an axis, was expected",
        type(given) == "table" and "another list" or check.show(given), #axes)
    end
    for i = 1, #axes do mapped[i] = given[i] end
  else
    for i, axis in ipairs(axes) do mapped[i] = map(axis, core.position(i - 1)) end
  end
  for i, axis in ipairs(axes) do
    if not core.is_expression(mapped[i]) then
      check.fail_in(map, "position of axis '%s' is %s, an expression of r was expected", axis, check.show(mapped[i]))
    end
  end
  return mapped
end

---- amplitude ----

local SIDES = { "q", "k" }

-- A factor of one side (nil: of both) as one expression of all blocks: a number, or function(r, block, head).
local function factor_of(factor, side, axes, heads, blocks)
  if type(factor) == "number" then
    local number = check.positive(word, "amplitude", factor)
    factor = function(_, _) return number end
  end
  if type(factor) ~= "function" then
    check.wrong(word, "amplitude", factor,
      "a positive number, function(r, block, head), or a table { q = ..., k = ... }")
  end
  local values, rows = for_blocks(factor, place.coordinates_of("position", axes), heads, blocks)
  local what = side and string.format("amplitude of %s", side) or "amplitude"
  for n = 1, rows * blocks do
    if not core.is_expression(values[n]) then
      check.fail_in(factor, "%s is %s in %s, an expression of the position was expected", what, check.show(values[n]),
        place_of(n, rows, blocks))
    end
  end
  return merge(values, rows, what, factor)
end

-- The field `amplitude`: the factor of all encoded channels, and what multiplies it on each side; nil: nothing does.
local function amplitude_of(given, axes, heads, blocks)
  if given == nil or type(given) == "number" then
    return given == nil and 1.0 or check.positive(word, "amplitude", given)
  end
  if type(given) ~= "table" then
    local both = factor_of(given, nil, axes, heads, blocks)
    return 1.0, { q = both, k = both }
  end
  local sides = check.fields("amplitude", given, SIDES)
  local gains = {}
  for _, side in ipairs(SIDES) do
    if sides[side] == nil then check.fail_field("amplitude", "amplitude lacks the field '%s'", side) end
    gains[side] = factor_of(sides[side], side, axes, heads, blocks)
  end
  return 1.0, gains
end

---- sides ----

-- The field `sides`: the axes by which q is boosted back, as bits. What turns in a plane of equal squares is its own
-- inverse transpose, what boosts in one of different squares has it at the negative angle, and other bivectors have
-- none that is a rotor of the same axis.
local function dual_axes_of(given, axes, block, generators, combine, basis)
  if given == nil or given == "same" then return 0 end
  if given ~= "dual" then check.wrong(word, "sides", given, "\"same\" or \"dual\"") end
  if block.dense or combine.apply then return 0 end -- turns all of them
  local p, q = block.algebra[1], block.algebra[2]
  local negative, null = ((1 << q) - 1) << p, ~((1 << (p + q)) - 1)
  local bits = 0
  for a, axis in ipairs(axes) do
    local boosts, turns = false, false
    for _, plane in ipairs(generators[a].blades) do
      if plane & null ~= 0 then
        check.fail_field("sides", "the generator of axis '%s' has %s, whose rotors have no inverse transpose that is "
          .. "one: \"dual\" goes with turns and boosts", axis, algebra.name_of(plane))
      end
      local minus = plane & negative
      if minus ~= 0 and minus ~= plane then boosts = true else turns = true end
    end
    if boosts and turns then
      check.fail_field("sides", "the generator of axis '%s' turns and boosts at once: \"dual\" goes with axes that do "
        .. "one of them", axis)
    end
    if boosts then bits = bits | 1 << (a - 1) end
  end
  if bits ~= 0 and basis then
    check.fail_field("sides", "\"dual\" goes with no 'basis' where an axis boosts: behind one, rows of q and of k are "
      .. "turned by the same matrices")
  end
  return bits
end

---- rotors on blocks of channels ----

local PRECISIONS = { "exact phases", "float32 phases" }

-- How a block's matrix is multiplied: products added without rounding, rounded to float32, or with the matrix's entries
-- to the rows' type.
local PRODUCTS = { "fused", "float32", "rounded" }

-- The field `products`, as the number of its word from 0 on (spec_products).
local function products_of(given, block)
  if given.products == nil then return 0 end
  for i, products in ipairs(PRODUCTS) do
    if given.products == products then
      if i > 1 and (block.dense or given.basis ~= nil) then
        check.fail_field("products", "products that are rounded go with blocks of blades or of pe.linear and no "
          .. "'basis'; \"fused\" was expected")
      end
      return i - 1
    end
  end
  check.wrong(word, "products", given.products, "\"fused\", \"float32\" or \"rounded\"")
end

-- Describes blocks that are multiplied by a matrix which the description writes: rotors that turn nothing, and the
-- entries of it.
local function written_blocks(given, block, described, axes, blocks, channels)
  local generators, phases, positions, order = {}, {}, {}, {}
  core.begin(blocks)
  operands.open(described.axes, described.heads, blocks)
  inputs.open(true)
  local matrices = linear.matrices_of(given.matrix, block.size, axes, described.heads, blocks, word,
    { for_blocks = for_blocks, place_of = place_of, merge = merge })
  inputs.close()
  operands.close()
  for a = 1, #axes do
    generators[a] = { blades = {}, coefficients = {} }
    phases[a], positions[a], order[a] = core.merge(0, 1), core.merge(core.position(a - 1), 1), a - 1
  end
  return {
    matrices = matrices, rounds_phases = false, products = products_of(given, block), algebra = block.algebra,
    size = block.size, dense = false, map = "",
    is_f64 = false, blades = block.masks, signs = block.signs, blocks = blocks, channels = channels, combine = "sum",
    order = order, generators = generators, phases = phases, positions = positions, amplitude = 1.0, dual_axes = 0,
  }
end

-- Words that make rules, written without what they make them of.
local UNCALLED = {
  [encoding.product] = "pe.product { ... }, the axes in their order",
  [encoding.symmetric] = "pe.symmetric { ... }, the axes in their order",
  [rotors.karcher] = "pe.karcher { steps = n }",
  [rotors.slerp] = "pe.slerp { from = \"x\", to = \"y\", at = t }",
}

-- What core.part and core.finish take of the blocks on `count` channels from `first` on, which may lie on channels
-- least to most; described: the whole. index_of: of `axes`, which are all of the whole's or a part's.
local function blocks_of(given, described, axes, index_of, first, count, least, most)
  local head_dim, heads = described.head_dim, described.heads
  local written = linear.block(given.block)
  if not written then check.required(word, given, { "block", "generators", "phase" }) end
  local block = written or algebra.block(given.block) or dense.block(given.block)
  if not block then
    check.wrong(word, "block", given.block,
      "pe.plane(), pe.vector(n), pe.multivector{...}, pe.dense(b) or pe.linear(n)")
  end
  if written then linear.check_fields(given, word)
  elseif given.matrix ~= nil then
    check.fail_field("matrix", "field 'matrix' of %s goes with a block of pe.linear, and this one turns by rotors",
      word)
  end
  local blocks = count // block.size
  if blocks == 0 then
    local field = given.span and "span" or "head_dim"
    check.fail_field(field, "%d channels are too few for a block of %d", count, block.size)
  end
  if heads * blocks > core.limits.rows then
    check.fail_field("heads", "%d heads of %d blocks; at most %d blocks in all heads were expected", heads, blocks,
      core.limits.rows)
  end
  if written then
    local channels = lay_out(given.layout, block, blocks, first, least, most)
    return written_blocks(given, block, described, axes, blocks, channels)
  end
  local combine = given.combine == nil and #axes == 1 and encoding.sum or given.combine
  if combine == nil then
    check.fail("%s lacks the field 'combine', which says how its %d axes become one rotor", word, #axes)
  end
  if UNCALLED[combine] then check.wrong(word, "combine", combine, UNCALLED[combine]) end
  combine = type(combine) == "table" and rules[combine] or rotors.rule(combine, axes, index_of)
  if not combine then
    check.wrong(word, "combine", given.combine, "pe.sum, pe.mean, pe.product{...}, pe.symmetric{...}, pe.chordal, "
      .. "pe.karcher{...}, pe.slerp{...} or function(R, block, head)")
  end
  if block.dense and (combine.order or combine.apply) then
    check.fail_field("combine", "pe.%s combines rotors; for dense blocks pe.sum or pe.mean was expected", combine.kind)
  end
  local order = combine_order(combine, axes, index_of)
  local by_axis = generator_table(given.generators, axes, index_of)
  local channels = lay_out(given.layout, block, blocks, first, least, most)

  core.begin(blocks)
  operands.open(described.axes, heads, blocks)
  inputs.open(true)
  local generators, phases, positions = {}, {}, {}
  for a, axis in ipairs(axes) do
    local generator = block.dense and matrices_of or generator_of
    generators[a] = generator(by_axis[axis], axis, heads, blocks, block)
    phases[a] = phase_of(given.phase, axis, heads, blocks)
  end
  local amplitude, gains = amplitude_of(given.amplitude, axes, heads, blocks)
  inputs.close()
  local combined = combine.apply and rotors.describe(combine, axes, heads, blocks)
  operands.close()
  if gains and (block.dense or given.basis ~= nil) then
    check.fail_field("amplitude", "an amplitude that is a function, or another of q than of k, goes with blocks of "
      .. "blades and no 'basis'; a number was expected")
  end
  local schur, basis = dense.basis(given.basis, block, head_dim, heads)
  for a, mapped in ipairs(positions_of(given.position, axes)) do positions[a] = core.merge(mapped, 1) end
  local precision = given.precision == nil and "exact phases" or given.precision
  if not check.contains(PRECISIONS, precision) then
    check.wrong(word, "precision", precision, "\"exact phases\" or \"float32 phases\"")
  end
  return {
    pre = pre.map_of(given.pre, word, block, given.basis), -- last, so that no other field can be given its x
    rounds_phases = precision == "float32 phases",
    products = products_of(given, block),
    algebra = block.algebra,
    size = block.size,
    dense = block.dense or false,
    map = schur and "schur" or block.map or "",
    is_f64 = block.is_f64 or false,
    basis = basis,
    blades = block.masks,
    signs = block.signs,
    blocks = blocks,
    channels = channels,
    combine = combined and "function" or combine.kind,
    order = order,
    rotors = combined or nil,
    generators = generators,
    phases = phases,
    positions = positions,
    amplitude = amplitude,
    gains = gains and { gains.q, gains.k },
    dual_axes = dual_axes_of(given.sides, axes, block, generators, combine, given.basis ~= nil),
  }
end

-- Fills `described`, which core.finish takes, from pe.encoding's fields.
local function describe_blocks(given, described, index_of)
  local first, count = check_span(given.span, described.head_dim)
  described.blocks =
    blocks_of(given, described, described.axes, index_of, first, count, 0, described.head_dim - 1)
  described.skip_tokens, described.grid, described.inverse = options.tokens(#described.axes, true)
  pre.check_direction(described.blocks.pre, described.inverse)
  linear.check_direction(described.blocks.matrices, described.inverse)
  if described.blocks.map == "schur" and described.inverse then
    check.fail_field("basis", "pe.schur has no inverse: its basis is known to the kernel alone")
  end
end

-- Fields that say something of blocks: none of them goes without one.
local OF_BLOCKS = {
  "layout", "span", "generators", "combine", "phase", "amplitude", "position", "precision", "products", "basis",
  "sides", "pre", "matrix",
}

-- What goes with a rotation alone, where there is none.
local function refuse_blocks(given)
  for _, field in ipairs(OF_BLOCKS) do
    if given[field] ~= nil then
      check.fail_field(field, "field '%s' of %s goes with a 'block', and there is none", field, WORD)
    end
  end
end

---- several kinds of blocks in one head ----

-- The axes that a part reads, their indices by name, and which of the whole's they are, counted from 0.
local function axes_of_part(part, described, index_of)
  if part.axes == nil then part.axes = described.axes end
  local names, own = check_axes(part.axes)
  local indices = {}
  for i, name in ipairs(names) do
    if not index_of[name] then
      check.fail_field("axes", "%s reads the axis '%s'%s", word, name, check.hint(name, described.axes))
    end
    indices[i] = index_of[name] - 1
  end
  return names, own, indices
end

-- A part that turns its channels; what it may be is what a whole may be that has blocks of blades and no inputs.
local function describe_part(part, described, index_of, first, count)
  if dense.block(part.block) then
    check.fail_field("block", "blocks of pe.dense do not stand in 'parts'; pe.plane(), pe.vector(n) or "
      .. "pe.multivector{...} was expected")
  end
  if type(part.matrix) == "table" then
    check.fail_field("matrix", "another matrix of q than of k does not stand in 'parts'; function(r, block, head) was "
      .. "expected")
  end
  if type(part.amplitude) == "table" then
    check.fail_field("amplitude", "another amplitude of q than of k does not stand in 'parts'; a number or "
      .. "function(r, block, head) was expected")
  end
  local axes, own, indices = axes_of_part(part, described, index_of)
  local blocks = blocks_of(part, described, axes, own, first, count, first, first + count - 1)
  core.part { first = first, count = count, axes = indices, blocks = blocks }
end

local function describe_parts(given, described, index_of)
  for _, field in ipairs { "block", table.unpack(OF_BLOCKS) } do
    if given[field] ~= nil then
      check.fail_field(field, "field '%s' of %s stands beside 'parts'; expected it in a part", field, WORD)
    end
  end
  local parts, behind, turning, maps, written = check.list(WORD, "parts", given.parts, "parts"), 0, 0, nil, nil
  for n, part in ipairs(parts) do
    check.about, word = string.format("part %d: ", n), "a part"
    part = check.fields(word, part, PART_FIELDS)
    check.required(word, part, { "span" })
    local first, count = check_span(part.span, described.head_dim)
    if first < behind then
      check.fail_field("span", "its span begins at channel %d, the part before it ends at %d; parts stand in the order "
        .. "of their channels and share none", first, behind - 1)
    end
    behind = first + count
    if part.block ~= nil then
      turning = turning + 1
      if turning > core.limits.parts then
        check.fail("%d parts with blocks, at most %d were expected", turning, core.limits.parts)
      end
      maps, written = maps or part.pre, written or part.matrix
      describe_part(part, described, index_of, first, count)
    else
      for _, field in ipairs(PART_FIELDS) do
        if part[field] ~= nil and field ~= "span" then
          check.fail_field(field, "field '%s' of %s goes with a 'block', and there is none", field, word)
        end
      end
    end
  end
  check.about, word = "", WORD
  if turning == 0 then check.fail_field("parts", "no part has a 'block'; expected one at least") end
  core.begin(1)
  described.skip_tokens, described.grid, described.inverse = options.tokens(#described.axes, true)
  pre.check_direction(maps, described.inverse)
  linear.check_direction(written, described.inverse)
end

-- Attention with a function of the displacement in it: a bias, a rotation of the keys' blocks, both or neither.
local function describe_pairwise(given, described, index_of)
  if given.block ~= nil then
    describe_blocks(given, described, index_of)
    if given.matrix ~= nil then
      check.fail_field("matrix", "field 'matrix' is for separable encodings: a matrix of a displacement is no product "
        .. "of the two tokens' matrices")
    end
    if described.blocks.gains then
      check.fail_field("amplitude", "an amplitude that is a function, or another of q than of k, is for separable "
        .. "encodings: a pair has one displacement and no side; a number was expected")
    end
    if given.pre ~= nil then
      check.fail_field("pre", "field 'pre' is for separable encodings, which map rows of q and k before they turn: "
        .. "attention turns keys by displacements; q and k can be mapped by a kernel of their own before it")
    end
    if given.products ~= nil then
      check.fail_field("products", "field 'products' is for separable encodings: attention turns keys by displacements "
        .. "in float32")
    end
    if given.sides ~= nil then
      check.fail_field("sides", "field 'sides' is for separable encodings: a pair has one displacement, and its keys "
        .. "turn by that alone")
    end
  else
    refuse_blocks(given)
    core.begin(1)
    operands.open(described.axes, described.heads, 1)
    operands.close()
    described.skip_tokens, described.grid, described.inverse = options.tokens(#described.axes, false)
  end
  pairwise.describe(given, described)
end

-- A bias that is a polynomial: columns that widen q and k, or, fused, a bias inside attention.
local function describe_polynomial(given, described, fused)
  if given.block ~= nil then
    check.fail_field("block",
      "field 'block' of %s goes with rotations, and a description with a pe.polynomial has none", WORD)
  end
  refuse_blocks(given)
  polynomial.describe(given, described, fused)
  if fused then pairwise.describe(given, described) end
end

-- Something that is added to the channels.
local function describe_sum(given, described)
  for _, field in ipairs { "block", "bias", "score", "sink", "value_dim", "scale", "values" } do
    if given[field] ~= nil then check.fail_field(field, "field '%s' of %s does not go with 'add'", field, WORD) end
  end
  refuse_blocks(given)
  additive.describe(given, described)
end

---- the whole ----

-- Refuses inputs that nothing reads, but a polynomial's of queries, whose gradients are zeros.
local function refuse_inputs(given, described, role)
  if given.score ~= nil or given.bias ~= nil then
    local may_rest = given.score == nil and polynomial.is(given.bias)
    for _, input in ipairs(inputs.list()) do
      local rests = may_rest and not input.of_keys
      if not (input.is_read or rests) then check.fail("input '%s' is read by no score and no bias", input.name) end
    end
    return
  end
  local blocks = role == "separable" and given.basis == nil and described.blocks
  for _, input in ipairs(inputs.list()) do
    if not blocks or blocks.dense then
      local message = string.format("input '%s' goes with a pe.polynomial, with 'score' and 'bias' of attention, or "
        .. "with 'phase', 'amplitude' and 'generators' of blades in separable encodings without 'basis' and 'parts'; "
        .. "this description has none of these", input.name)
      if given.phase == nil then check.fail("%s", message) end
      check.fail_field("phase", "%s", message)
    end
    if not input.is_read then check.fail("input '%s' is read by no phase, amplitude or generator", input.name) end
  end
end

local begun = false
local ROLES = { "separable", "pairwise", "additive" }

function encoding.encoding(given)
  given = check.fields(WORD, given, FIELDS)
  check.required(WORD, given, { "name", "axes", "head_dim" })
  if begun then check.fail("a spec describes one encoding, this is the second") end
  begun, check.sealed = true, true
  local axes, index_of = check_axes(given.axes)
  local described = {
    name = check.identifier(WORD, "name", given.name),
    doc = check.text(WORD, "doc", given.doc, ""),
    line = core.line(),
    axes = axes,
    head_dim = check.integer(WORD, "head_dim", given.head_dim, 1, core.limits.head_dim),
    heads = check.integer(WORD, "heads", given.heads == nil and 1 or given.heads, 1, core.limits.rows),
  }
  local is_polynomial = polynomial.is(given.bias)
  local is_separable = given.score == nil and given.sink == nil and (given.bias == nil or is_polynomial)
  local natural = given.add ~= nil and "additive" or is_separable and "separable" or "pairwise"
  local role = given.role == nil and natural or given.role
  if (given.add ~= nil) ~= (role == "additive") then
    check.fail_field("role", "role = \"additive\" goes with the field 'add', and 'add' with no other role")
  end
  if given.parts ~= nil and (role ~= "separable" or is_polynomial) then
    check.fail_field("parts", "'parts' turn rows of q and k before attention; expected role = \"separable\" and none "
      .. "of 'bias', 'score' and 'add'")
  end
  if role == "pairwise" then
    if is_polynomial then describe_polynomial(given, described, true)
    else describe_pairwise(given, described, index_of) end
  elseif role == "additive" then describe_sum(given, described)
  elseif role == "separable" then
    for _, field in ipairs { "bias", "score", "sink", "value_dim", "scale", "values" } do
      if given[field] ~= nil and not (field == "bias" and is_polynomial) then
        check.fail_field(field, "field '%s' of %s goes with role = \"pairwise\"", field, WORD)
      end
    end
    if is_polynomial then describe_polynomial(given, described)
    elseif given.parts ~= nil then describe_parts(given, described, index_of)
    else describe_blocks(given, described, index_of) end
  else
    check.wrong(WORD, "role", role, "\"separable\", \"pairwise\" or \"additive\"" .. check.hint(role, ROLES))
  end
  refuse_inputs(given, described, role)
  described.operands, described.inputs = operands.list(described.axes), inputs.list()
  options.settle()
  described.models = models.list(given.models)
  return core.finish(described)
end

return encoding
