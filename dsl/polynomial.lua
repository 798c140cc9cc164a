-- polynomial: pe.polynomial, a bias of attention that is a polynomial in the displacement of a key from its
-- query, and how pe.encoding traces it.
local core = ...
local check = core.include "check"
local inputs = core.include "inputs"
local operands = core.include "operands"
local options = core.include "options"
local place = core.include "place"
local polynomial = {}

local WORD = "pe.polynomial"
local Polynomial = { __metatable = "polynomial" }
local hidden = setmetatable({}, { __mode = "k" })

function polynomial.is(value) return type(value) == "table" and hidden[value] ~= nil end

local function is_coordinate(value)
  return type(value) == "number" and value == value and math.abs(value) <= 2 ^ 52
end

-- polynomial{ degree, terms, value = function(delta, l, head), origin }
function polynomial.polynomial(given)
  given = check.fields(WORD, given, { "degree", "terms", "value", "origin" })
  check.required(WORD, given, { "degree", "value" })
  if type(given.value) ~= "function" then check.wrong(WORD, "value", given.value, "function(delta, term, head)") end
  local handle = setmetatable({}, Polynomial)
  local origin
  if given.origin ~= nil then
    origin = check.list(WORD, "origin", given.origin, "numbers, one an axis")
    for i, value in ipairs(origin) do
      if not is_coordinate(value) then
        check.wrong(WORD, "origin", given.origin, "a list of finite numbers, one an axis")
      end
      origin[i] = value + 0.0
    end
  end
  hidden[handle] = {
    degree = check.integer(WORD, "degree", given.degree, 1, core.limits.degree),
    terms = given.terms == nil and 1 or check.integer(WORD, "terms", given.terms, 1, core.limits.terms),
    value = given.value,
    origin = origin,
  }
  return handle
end

-- The option `origin`: nil where calls have their own.
local function chosen_origin()
  local text = options.option("origin", "call",
    "what columns count positions from: call: the middle of a built-in grid or of each call's tokens, or what the " ..
      "call " ..
      "says; or coordinates, one an axis: 1000,6.5")
  if text == "call" then return nil end
  local origin = {}
  for item in (text .. ","):gmatch "[^,]*," do
    local value = tonumber(item:sub(1, -2))
    if not is_coordinate(value) then
      check.fail("option 'origin' is %s, call or numbers separated by commas were expected", check.show(text))
    end
    origin[#origin + 1] = value + 0.0
  end
  return origin
end

-- The middle of the built-in grid, by which columns were chosen; else what stands for coordinates that are not finite.
local function default_origin(axes, grid)
  local origin = {}
  for i in ipairs(axes) do origin[i] = grid[i] and (grid[i] - 1) / 2 or 0.0 end
  return origin
end

-- Fills `described`, which core.finish takes, from pe.encoding's fields. fused: the bias is attention's own, and there
-- are no columns to choose.
function polynomial.describe(given, described, fused)
  local bias, axes = hidden[given.bias], described.axes
  local heads, terms = described.heads, bias.terms
  if heads * terms > core.limits.rows then
    check.fail_field("heads", "%d heads of %d terms; at most %d in all were expected", heads, terms, core.limits.rows)
  end
  local origin = bias.origin
  if not origin and not fused then origin = chosen_origin() end
  if origin and #origin ~= #axes then
    check.fail_field("origin", "the origin has %d coordinates, one for each of the %d axes was expected", #origin,
      #axes)
  end
  core.begin(terms)
  operands.open(axes, heads, terms)
  inputs.open(false, false, fused)
  local delta = place.coordinates_of("displacement", axes)
  local rows = core.parameters(bias.value) < 3 and 1 or heads
  local values = {}
  for head = 0, rows - 1 do
    for term = 0, terms - 1 do
      local value = bias.value(delta, term, head)
      if not core.is_expression(value) then
        check.fail_in(bias.value,
          "the polynomial's value is %s in term %d, an expression of the displacement was expected",
          check.show(value), term)
      end
      values[#values + 1] = value
    end
  end
  inputs.close()
  operands.close()
  local merged, head, term = core.merge(values, rows)
  if not merged then
    check.fail_in(bias.value,
      "the polynomial has another form in term %d of head %d than in term 0: " ..
        "the same operations on other numbers were expected",
      term, head)
  end
  described.polynomial = {
    value = merged,
    degree = bias.degree,
    terms = terms,
    exact_scores = not fused and options.option("exact_scores", false,
      "keep the column that is constant along a softmax row, so that scores themselves are reproduced"),
    split_columns = not fused and options.option("split_columns", true,
      "bfloat16 and float16: columns as sums of two, so that rounding them costs no more than 2^-8 of a logit"),
  }
  described.skip_tokens, described.grid = options.tokens(#axes)
  described.polynomial.origin = origin or default_origin(axes, described.grid)
  described.polynomial.has_call_origin = not origin and not fused and #described.grid == 0
end

return polynomial
