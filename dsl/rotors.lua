-- rotors: how the rotors of the axes become one, where that is a function of them: products, inverses, powers,
-- logarithms and exponentials, and means of rotations. What a spec writes becomes a list of a few operations
-- (ROTOR_OPS in compiler/spec/spec.h), alike in all blocks but for numbers; powers, slerp and Karcher's mean are made
-- of them here.
local core = ...
local check = core.include "check"
local operands = core.include "operands"
local rotors = {}

local arithmetic = core.arithmetic

---- values of a function: rotors, and bivectors that are their logarithms ----

local Rotor, Bivector = { __metatable = "rotor" }, { __metatable = "logarithm" }
local made = setmetatable({}, { __mode = "k" }) -- by value: { op, axis, arguments, factors }

local function make(kind, op, arguments, factors, axis)
  local value = setmetatable({}, kind)
  made[value] = { op = op, arguments = arguments or {}, factors = factors or {}, axis = axis or 0, kind = kind }
  return value
end

local function is_rotor(value) return type(value) == "table" and made[value] ~= nil and made[value].kind == Rotor end
local function is_bivector(value)
  return type(value) == "table" and made[value] ~= nil and made[value].kind == Bivector
end

local function show(value)
  if is_rotor(value) then return "a rotor" end
  if is_bivector(value) then return "the logarithm of a rotor" end
  return check.show(value)
end

local function sum(terms, factors) return make(Bivector, "sum", terms, factors) end

function rotors.log(x)
  if is_bivector(x) then check.fail("pe.log of the logarithm of a rotor; a rotor or an expression was expected") end
  return is_rotor(x) and make(Bivector, "log", { x }) or arithmetic.log(x)
end

function rotors.exp(x)
  if is_rotor(x) then check.fail("pe.exp of a rotor; the logarithm of a rotor or an expression was expected") end
  return is_bivector(x) and make(Rotor, "exp", { x }) or arithmetic.exp(x)
end

Rotor.__mul = core.word(function(x, y)
  if not is_rotor(x) or not is_rotor(y) then
    check.fail("a rotor times %s, a rotor was expected", show(is_rotor(x) and y or x))
  end
  return make(Rotor, "product", { x, y })
end)

local function power(x, t)
  if t == -1 then return make(Rotor, "inverse", { x }) end
  return rotors.exp(sum({ rotors.log(x) }, { t }))
end

Rotor.__pow = core.word(function(x, t)
  if not is_rotor(x) or not core.is_expression(t) then
    check.fail("a rotor to the power of %s, a number or an expression was expected", show(t))
  end
  return power(x, t)
end)

local function no_arithmetic()
  check.fail("rotors are multiplied and raised to powers; sums and multiples are of their logarithms, pe.log(R)")
end
for _, event in ipairs { "__add", "__sub", "__div", "__unm", "__idiv", "__mod" } do
  Rotor[event] = core.word(no_arithmetic)
end

local function scaled(x, factor)
  if not core.is_expression(factor) then
    check.fail("the logarithm of a rotor times %s, a number or an expression was expected", show(factor))
  end
  return sum({ x }, { factor })
end

Bivector.__mul = core.word(function(x, y)
  if is_bivector(x) then return scaled(x, y) end
  return scaled(y, x)
end)
Bivector.__div = core.word(function(x, y)
  if not is_bivector(x) or not core.is_expression(y) then check.fail("a division by %s", show(y)) end
  return scaled(x, 1 / y)
end)
Bivector.__unm = core.word(function(x) return scaled(x, -1) end)

local function added(x, y, factor)
  if not is_bivector(x) or not is_bivector(y) then
    check.fail("the logarithm of a rotor plus %s, the logarithm of a rotor was expected",
      show(is_bivector(x) and y or x))
  end
  return sum({ x, y }, { 1, factor })
end
Bivector.__add = core.word(function(x, y) return added(x, y, 1) end)
Bivector.__sub = core.word(function(x, y) return added(x, y, -1) end)

---- means ----

-- Weights as shares of their sum: not below 0, and 1 together unless none is above 0.
local function shares_of(word, weights, count)
  local shares, total, known = {}, 0, true
  local function fail(...) check.fail_field("weights", ...) end
  for i = 1, count do
    local weight = 1
    if weights then weight = weights[i] end
    if not core.is_expression(weight) then
      fail("weight %d of %s is %s, a number or an expression was expected", i, word, show(weight))
    end
    if type(weight) == "number" and not (weight >= 0 and weight < math.huge) then
      fail("weight %d of %s is %s, a finite number that is not below 0 was expected", i, word, show(weight))
    end
    shares[i] = type(weight) == "number" and weight or arithmetic.max(weight, 0)
    total = total + shares[i]
    known = known and type(weight) == "number"
  end
  if known and not (total > 0 and total < math.huge) then fail("no weight of %s is above 0", word) end
  if not known then total = arithmetic.max(total, 2.0 ^ -60) end
  for i = 1, count do shares[i] = shares[i] / total end
  return shares
end

local function chordal(arguments, weights)
  return make(Rotor, "chordal", arguments, shares_of("pe.chordal", weights, #arguments))
end

-- steps of x <- exp(sum of w log(R x^-1)) x, from the chordal mean.
local function karcher(arguments, weights, steps)
  local x, shares = chordal(arguments, weights), shares_of("pe.karcher", weights, #arguments)
  for _ = 1, steps do
    local back, logarithms = power(x, -1), {}
    for i, rotor in ipairs(arguments) do logarithms[i] = rotors.log(make(Rotor, "product", { rotor, back })) end
    x = make(Rotor, "product", { rotors.exp(sum(logarithms, shares)), x })
  end
  return x
end

-- a (a^-1 b)^t: a at 0, b at 1, the shorter way.
local function slerp(a, b, t)
  local way = make(Rotor, "product", { power(a, -1), b })
  return make(Rotor, "product", { a, rotors.exp(sum({ rotors.log(way) }, { t })) })
end

---- words ----

local Rule = { __metatable = "combine" }
local rules = setmetatable({}, { __mode = "k" }) -- what the tables that a spec holds stand for

local STEPS = 32

local function check_steps(word, steps) return check.integer(word, "steps", steps, 1, STEPS) end

local function new_rule(kind, given, metatable)
  local rule = setmetatable({}, metatable or Rule)
  rules[rule] = { kind = kind, given = given or {} }
  return rule
end

-- Rotors that a word is given inside of a function: a list.
local function rotors_of(word, list)
  list = check.list(word, "rotors", list, "rotors")
  if #list < 1 or #list > core.limits.arguments then
    check.fail("%s of %d rotors, 1 to %d were expected", word, #list, core.limits.arguments)
  end
  for i, rotor in ipairs(list) do
    if not is_rotor(rotor) then check.fail("rotor %d of %s is %s, a rotor was expected", i, word, show(rotor)) end
  end
  return list
end

local function weights_of(word, weights, count)
  if weights == nil then return nil end
  weights = check.list(word, "weights", weights, "weights")
  if #weights ~= count then check.fail("%s of %d rotors has %d weights", word, count, #weights) end
  return weights
end

-- Whether a word stands inside of a function: its first argument is a list of rotors.
local function is_applied(first)
  return type(first) == "table" and getmetatable(first) == nil and is_rotor(first[1])
end

local Chordal = { __metatable = "combine" }
Chordal.__call = core.word(function(_, first, weights)
  if is_applied(first) then
    local list = rotors_of("pe.chordal", first)
    return chordal(list, weights_of("pe.chordal", weights, #list))
  end
  return new_rule("chordal", check.fields("pe.chordal", first, { "weights" }))
end)
rotors.chordal = new_rule("chordal", nil, Chordal)

rotors.karcher = core.word(function(first, steps, weights)
  if is_applied(first) then
    local list = rotors_of("pe.karcher", first)
    return karcher(list, weights_of("pe.karcher", weights, #list), check_steps("pe.karcher", steps))
  end
  local given = check.fields("pe.karcher", first, { "steps", "weights" })
  check.required("pe.karcher", given, { "steps" })
  check_steps("pe.karcher", given.steps)
  return new_rule("karcher", given)
end)

rotors.slerp = core.word(function(first, second, at)
  if is_rotor(first) or is_rotor(second) then
    if not is_rotor(first) or not is_rotor(second) or not core.is_expression(at) then
      check.fail("pe.slerp(%s, %s, %s): two rotors and a number or an expression were expected", show(first),
        show(second), show(at))
    end
    return slerp(first, second, at)
  end
  local given = check.fields("pe.slerp", first, { "from", "to", "at" })
  check.required("pe.slerp", given, { "from", "to", "at" })
  return new_rule("slerp", given)
end)

---- rules as functions of rotors, block and head ----

-- A number of axis, block and head: a number, a function, an operand, or a table of them by axis.
local function value_of(field, value, axis, i, head)
  if type(value) == "table" and not operands.is(value) and getmetatable(value) == nil then value = value[axis] end
  if operands.is(value) then
    if operands.skew(value) then check.fail_field(field, "'%s' are skew matrices, numbers were expected", field) end
    return operands.element(value, axis, i, head, field)
  end
  if type(value) == "function" then value = value(axis, i, head) end
  if core.is_expression(value) then return value end
  check.fail_field(field, "'%s' is %s for axis '%s', a number, an expression, an operand or a function was expected",
    field, show(value), tostring(axis))
end

local function axis_rotors(axes)
  local list, named = {}, {}
  for a, axis in ipairs(axes) do
    list[a] = make(Rotor, "axis", nil, nil, a - 1)
    named[axis] = list[a]
  end
  return list, setmetatable({}, {
    __metatable = "rotors",
    __index = core.word(function(_, name)
      local rotor = named[name]
      if not rotor then check.fail("there is no axis %s%s", check.show(name), check.hint(name, axes)) end
      return rotor
    end),
  })
end

local function weights_by_axis(rule, axes, i, head)
  if rule.given.weights == nil then return nil end
  local weights = {}
  for a, axis in ipairs(axes) do weights[a] = value_of("weights", rule.given.weights, axis, i, head) end
  return weights
end

local apply = {}

function apply.chordal(rule, axes, list, i, head) return chordal(list, weights_by_axis(rule, axes, i, head)) end

function apply.karcher(rule, axes, list, i, head)
  return karcher(list, weights_by_axis(rule, axes, i, head), rule.given.steps)
end

apply.slerp = function(rule, _, list, i, head)
  local at = rule.given.at
  local t = value_of("at", type(at) == "function" and function() return at(i, head) end or at, rule.from, i, head)
  return slerp(list[rule.from], list[rule.to], t)
end

apply["function"] = function(rule, _, _, i, head, named) return rule.f(named, i, head) end

-- What the field 'combine' holds as a rule: { kind, text, apply, ... }, or nil for what is none.
function rotors.rule(value, axes, index_of)
  if type(value) == "function" then
    return { kind = "function", f = value, source = value, apply = apply["function"],
      text = "a function of the axes' rotors" }
  end
  local known = type(value) == "table" and rules[value]
  if not known then return nil end
  local rule = { kind = known.kind, given = known.given, apply = apply[known.kind] }
  local weighted = known.given.weights ~= nil and "weighted " or ""
  if rule.kind == "chordal" then
    rule.text = "chordal mean: the rotation nearest to the " .. weighted .. "mean of the axes' rotations"
  elseif rule.kind == "karcher" then
    rule.text = string.format("Karcher mean: %d steps towards the %sRiemannian mean of the axes' rotations, " ..
      "from the chordal mean", known.given.steps, weighted)
  else
    for _, field in ipairs { "from", "to" } do
      local axis = known.given[field]
      if not index_of[axis] then
        check.fail_field(field, "'%s' of pe.slerp is %s%s", field, check.show(axis), check.hint(axis, axes))
      end
      rule[field] = index_of[axis]
    end
    rule.text = string.format("slerp: a part of the shortest way from the rotation of %s to that of %s",
      known.given.from, known.given.to)
  end
  return rule
end

---- the list of operations ----

local function is_numeric(value)
  return value == nil or type(value) == "number"
end

-- How many heads and blocks a rule is asked for: 1 and 1 where nothing differs.
local function asks_for(rule, heads, blocks)
  if rule.kind == "function" then
    local parameters = core.parameters(rule.f)
    if parameters < 2 then return 1, 1 end
    return parameters < 3 and 1 or heads, blocks
  end
  if is_numeric(rule.given.weights) and is_numeric(rule.given.at) then return 1, 1 end
  return heads, blocks
end

-- Adds the operation that all blocks' values stand for, and those before it; its index from 0.
local function emit(values, state)
  local known = state.index[values[1]]
  for _, earlier in ipairs(known or {}) do
    local same = true
    for k = 1, #values do same = same and earlier.values[k] == values[k] end
    if same then return earlier.at end
  end
  local first = made[values[1]]
  for k = 2, #values do
    local other = made[values[k]]
    if other.op ~= first.op or other.axis ~= first.axis or #other.arguments ~= #first.arguments then
      check.fail_in(state.source, "combine has another form in one block than in block 0: " ..
        "the same operations on other numbers were expected")
    end
  end
  local node = { op = first.op, axis = first.axis, arguments = {}, factors = {} }
  for j = 1, #first.arguments do
    local column = {}
    for k = 1, #values do column[k] = made[values[k]].arguments[j] end
    node.arguments[j] = emit(column, state)
  end
  for j = 1, #first.factors do
    local column = {}
    for k = 1, #values do column[k] = made[values[k]].factors[j] end
    node.factors[j] = core.merge(#column == 1 and column[1] or column, state.rows)
    if not node.factors[j] then
      check.fail_in(state.source, "a weight of combine has another form in one block than in block 0: " ..
        "the same operations on other numbers were expected")
    end
  end
  if #state.nodes == core.limits.rotors then
    check.fail_in(state.source, "combine takes more than %d operations on rotors", core.limits.rotors)
  end
  state.nodes[#state.nodes + 1] = node
  state.index[values[1]] = known or {}
  table.insert(state.index[values[1]], { values = values, at = #state.nodes - 1 })
  return #state.nodes - 1
end

-- { text, nodes } of a rule; operands are open.
function rotors.describe(rule, axes, heads, blocks)
  local list, named = axis_rotors(axes)
  local rows, per_row = asks_for(rule, heads, blocks)
  local values = {}
  for head = 0, rows - 1 do
    for i = 0, per_row - 1 do
      local value = rule.apply(rule, axes, list, i, head, named)
      if not is_rotor(value) then
        check.fail_in(rule.source, "combine is %s in block %d, a rotor was expected", show(value), i)
      end
      values[#values + 1] = value
    end
  end
  local state = { nodes = {}, index = {}, rows = rows, source = rule.source }
  emit(values, state)
  return { text = rule.text, nodes = state.nodes }
end

return rotors
