-- pairwise: functions of the displacement r_j - r_i of a key from a query, inside attention.
local core = ...
local check = core.include "check"
local inputs = core.include "inputs"
local operands = core.include "operands"
local place = core.include "place"
local polynomial = core.include "polynomial"
local pairwise = {}

local WORD = "pe.encoding"

-- Minus infinity: a key with this bias is not seen.
pairwise.masked = core.masked()

-- norm(delta): the Euclidean length of a displacement, or of any list of expressions.
function pairwise.norm(delta)
  local is_list = type(delta) == "table" and (getmetatable(delta) == nil or place.is(delta))
  local count = is_list and rawlen(delta) or 0
  if count == 0 then check.fail("pe.norm takes a displacement or a list of expressions, not %s", check.show(delta)) end
  for i = 1, count do
    if not core.is_expression(delta[i]) then
      check.fail("pe.norm: entry %d is %s, a number or an expression was expected", i, check.show(delta[i]))
    end
  end
  if count == 1 then return core.arithmetic.abs(delta[1]) end
  local sum = delta[1] * delta[1]
  for i = 2, count do sum = sum + delta[i] * delta[i] end
  return core.arithmetic.sqrt(sum)
end

-- sum(n, f): f(0) + f(1) + ... + f(n - 1), a loop in the kernel; f is called once, with an expression for its index.
function pairwise.sum(count, f)
  local terms = math.type(count) and math.tointeger(count)
  if not terms or terms < 1 or terms > core.limits.sum then
    check.fail("pe.sum(n, f): n is %s, a whole number from 1 to %d was expected", check.show(count), core.limits.sum)
  end
  if type(f) ~= "function" then check.fail("pe.sum(n, f): f is %s, function(k) was expected", check.show(f)) end
  if not operands.computes() then
    check.fail "pe.sum(n, f) stands in a bias or a score; elsewhere write a loop: for k = 0, n - 1 do x = x + ... end"
  end
  if terms == 1 then return f(0) end
  local index = core.term(terms)
  local value = f(index)
  if not core.is_expression(value) then
    check.fail("pe.sum: its function gave %s, an expression or a number was expected", check.show(value))
  end
  return core.sum(value, index)
end

-- The number of blocks in the pool that is open: blocks of channels, or a polynomial's terms.
local function blocks_of(described)
  if described.polynomial then return described.polynomial.terms end
  return described.blocks and described.blocks.blocks or 1
end

-- A function's values in all heads as one expression. what: "bias", "score" or "sink"; own: how many parameters come
-- before the head; value_in(delta, head): the function's value.
local function merged_of(what, given, own, described, value_in)
  local heads = core.parameters(given) <= own and 1 or described.heads
  local blocks = blocks_of(described)
  local delta, parts = place.coordinates_of("displacement", described.axes), {}
  for head = 0, heads - 1 do
    local value = value_in(delta, head)
    if not core.is_expression(value) then
      check.fail_in(given, "%s is %s in head %d, an expression of the displacement or a number was expected",
        what, check.show(value), head)
    end
    for block = 1, blocks do parts[head * blocks + block] = value end
  end
  local merged, head = core.merge(parts, heads)
  if not merged then
    check.fail_in(given,
      "%s has another form in head %d than in head 0: the same operations on other numbers were expected",
      what, head)
  end
  return merged
end

-- bias(delta [, head])
local function bias_of(bias, described)
  return merged_of("bias", bias, 1, described, function(delta, head) return bias(delta, head) end)
end

-- A bias as a score, which reads inputs of the query and the key: s + bias(delta [, head])
local function biased_score_of(bias, described)
  local s = place.product()
  return merged_of("bias", bias, 1, described, function(delta, head)
    local value = bias(delta, head)
    return core.is_expression(value) and s + value or value
  end)
end

-- score(s, delta [, head [, query, key]])
local function score_of(score, described)
  local s, query, key = place.product(), place.token_of("query", "i"), place.token_of("key", "j")
  return merged_of("score", score, 2, described, function(delta, head) return score(s, delta, head, query, key) end)
end

-- sink([head]): one score more in every row's softmax, whose value is 0.
local function sink_of(sink, described, has_columns)
  if type(sink) ~= "function" then check.wrong(WORD, "sink", sink, "function(head)") end
  if has_columns then
    check.fail_field("sink", "field 'sink' of %s does not go with a pe.polynomial, whose scores leave out what keys "
      .. "have in common", WORD)
  end
  operands.open(described.axes, described.heads, blocks_of(described))
  local merged = merged_of("sink", sink, 0, described, function(_, head) return sink(head) end)
  operands.close()
  return merged
end

-- values = "same": rows of v are turned by what turns their keys, and outputs back by what turns their queries.
local function turns_values(given, described, value_dim)
  local function refuse(why) check.fail_field("values", "field 'values' of %s: " .. why, WORD) end
  if given.values == nil then return false end
  if given.values ~= "same" then check.wrong(WORD, "values", given.values, "\"same\"") end
  if not described.blocks then refuse "what turns keys turns values, and there is no 'block'" end
  if value_dim ~= described.head_dim then
    refuse(string.format("channels of values turn as those of keys do, value_dim is %d and head_dim %d",
      value_dim, described.head_dim))
  end
  if described.skip_tokens > 0 then
    refuse "skip_tokens is not 0: a query's output is turned as a whole, also what comes from keys that are not"
  end
  if described.blocks.amplitude ~= 1 then
    refuse "values are turned and not stretched, an amplitude of 1 was expected"
  end
  return true
end

-- Adds what pe.encoding's fields say of pairs; the expressions' pool is open. A pe.polynomial is described by its own
-- room, before this: a score beside it is given its sum with the product.
function pairwise.describe(given, described)
  local value_dim = given.value_dim == nil and described.head_dim or given.value_dim
  local pair = { value_dim = check.integer(WORD, "value_dim", value_dim, 1, core.limits.head_dim) }
  pair.scale = given.scale == nil and 0 or check.positive(WORD, "scale", given.scale)
  pair.turns_values = turns_values(given, described, pair.value_dim)
  if given.bias ~= nil and not polynomial.is(given.bias) then
    if type(given.bias) ~= "function" then check.wrong(WORD, "bias", given.bias,
      "function(delta, head) or a pe.polynomial") end
    operands.open(described.axes, described.heads, described.blocks and described.blocks.blocks or 1, true)
    inputs.open(true, true)
    if #inputs.list() > 0 then pair.score = biased_score_of(given.bias, described)
    else pair.bias = bias_of(given.bias, described) end
    inputs.close()
    operands.close()
  end
  if given.score ~= nil then
    if type(given.score) ~= "function" then
      check.wrong(WORD, "score", given.score, "function(s, delta, head, query, key)")
    end
    if given.bias ~= nil and not polynomial.is(given.bias) then
      check.fail_field("score", "field 'score' of %s goes without a 'bias' that is a function: what is added to s is "
        .. "written in it", WORD)
    end
    operands.open(described.axes, described.heads, blocks_of(described), true)
    inputs.open(true, true)
    pair.score = score_of(given.score, described)
    inputs.close()
    operands.close()
  end
  if given.sink ~= nil then pair.sink = sink_of(given.sink, described, polynomial.is(given.bias)) end
  described.pairwise = pair
end

return pairwise
