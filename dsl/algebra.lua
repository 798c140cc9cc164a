-- algebra: blocks of blades, and bivectors that generate rotations.
--
-- A blade is a bit mask: bit i stands for e_{i+1}. A block lists its components as (mask, sign), so
-- that e31 is (5, -1). A generator B acts as x -> R x R^-1 with R = exp(theta/2 B).
local core = ...
local check = core.include "check"
local algebra = {}

-- What a spec holds are empty tables; what they stand for is here, where a spec cannot change it.
local Block, Bivector = { __metatable = "block" }, { __metatable = "bivector" }
local blocks, bivectors = setmetatable({}, { __mode = "k" }), setmetatable({}, { __mode = "k" })

-- { algebra = {p, q, r}, dimensions, size, masks, signs }, or nil for what is no block.
function algebra.block(value) return type(value) == "table" and blocks[value] or nil end
-- Coefficients by mask, numbers or expressions, or nil for what is no bivector.
function algebra.parts(value) return type(value) == "table" and bivectors[value] or nil end

local function bits(mask)
  local count = 0
  while mask > 0 do
    count, mask = count + (mask & 1), mask >> 1
  end
  return count
end

-- The name of a mask: "1", "e12", ascending.
local function name_of(mask)
  if mask == 0 then return "1" end
  local digits = ""
  for i = 1, core.limits.dimensions do
    if mask & (1 << (i - 1)) ~= 0 then digits = digits .. i end
  end
  return "e" .. digits
end
algebra.name_of = name_of

-- "e31" -> mask 5, sign -1, largest index 3; nothing for anything else.
local function parse(text)
  if text == "1" then return 0, 1, 0 end
  if type(text) ~= "string" or #text < 2 or #text > 6 or text:sub(1, 1) ~= "e" then return end
  local mask, sign, largest = 0, 1, 0
  for i = 2, #text do
    local digit = text:byte(i) - 48
    if digit < 1 or digit > 9 then return end
    local bit = 1 << (digit - 1)
    if mask & bit ~= 0 then return end
    if bits(mask >> digit) % 2 == 1 then sign = -sign end -- moved past every larger index before it
    mask, largest = mask | bit, math.max(largest, digit)
  end
  return mask, sign, largest
end

---- blocks ----

local function new_block(p, q, r, masks, signs)
  local block = setmetatable({}, Block)
  blocks[block] = { algebra = { p, q, r }, dimensions = p + q + r, size = #masks, masks = masks, signs = signs }
  return block
end

-- vector(n): a vector of n components under rotations, the grade 1 of Cl(n,0), 2 <= n <= 5.
function algebra.vector(n)
  if math.type(n) ~= "integer" or n < 2 or n > core.limits.dimensions then
    check.fail("pe.vector(%s): a size from 2 to %d was expected", check.show(n), core.limits.dimensions)
  end
  local masks, signs = {}, {}
  for i = 1, n do masks[i], signs[i] = 1 << (i - 1), 1 end
  return new_block(n, 0, 0, masks, signs)
end

function algebra.plane() return algebra.vector(2) end

-- The components of whole grades: by ascending mask, with e31 in place of e13 in three dimensions,
-- where e23, e31, e12 turn exactly as e1, e2, e3 do.
local function components_of_grades(grades, dimensions)
  grades = check.list("pe.multivector", "grades", grades, "grades")
  local wanted, masks, signs = {}, {}, {}
  for _, grade in ipairs(grades) do
    if math.type(grade) ~= "integer" or grade < 0 or grade > dimensions then
      check.fail_field("grades", "grade %s of an algebra of %d dimensions; grades 0 to %d were expected",
        check.show(grade), dimensions, dimensions)
    end
    if wanted[grade] then check.fail_field("grades", "grade %d is listed twice", grade) end
    wanted[grade] = true
  end
  for mask = 0, (1 << dimensions) - 1 do
    if wanted[bits(mask)] then
      masks[#masks + 1] = mask
      signs[#signs + 1] = dimensions == 3 and mask == 5 and -1 or 1
    end
  end
  return masks, signs
end

local function components_of_names(names, dimensions)
  names = check.list("pe.multivector", "blades", names, "blades")
  local masks, signs, seen = {}, {}, {}
  for i, name in ipairs(names) do
    local mask, sign, largest = parse(name)
    if not mask then
      check.fail_field("blades", "%s is no blade; \"1\", \"e1\" or \"e31\" was expected", check.show(name))
    end
    if largest > dimensions then
      check.fail_field("blades", "blade %s is not of this algebra, which has %d dimensions", name, dimensions)
    end
    if seen[mask] then
      local twice = seen[mask] == name and string.format("blade %s is listed twice", name)
      core.fail_field("blades", twice or string.format("blades %s and %s are the same but for the sign", seen[mask],
        name))
    end
    masks[i], signs[i], seen[mask] = mask, sign, name
  end
  return masks, signs
end

-- multivector{ algebra = {p, q, r}, blades = {...} | grades = {...} }
function algebra.multivector(given)
  local word = "pe.multivector"
  given = check.fields(word, given, { "algebra", "blades", "grades" })
  check.required(word, given, { "algebra" })
  local squares = check.list(word, "algebra", given.algebra, "three numbers {p, q, r}")
  if #squares > 3 then
    check.wrong(word, "algebra", given.algebra, "a list {p, q, r}")
  end
  local p = check.integer(word, "algebra", squares[1] or 0, 0, core.limits.dimensions)
  local q = check.integer(word, "algebra", squares[2] or 0, 0, core.limits.dimensions)
  local r = check.integer(word, "algebra", squares[3] or 0, 0, core.limits.dimensions)
  local dimensions = p + q + r
  if dimensions < 1 or dimensions > core.limits.dimensions then
    check.fail_field("algebra", "an algebra of %d dimensions; 1 to %d were expected", dimensions,
      core.limits.dimensions)
  end
  if (given.blades == nil) == (given.grades == nil) then
    check.fail("pe.multivector needs either 'blades' or 'grades'")
  end
  local masks, signs
  if given.blades then masks, signs = components_of_names(given.blades, dimensions)
  else masks, signs = components_of_grades(given.grades, dimensions) end
  if #masks == 0 then check.fail("pe.multivector has no blades") end
  return new_block(p, q, r, masks, signs)
end

---- bivectors ----

local function new_bivector(coefficients)
  local bivector = setmetatable({}, Bivector)
  bivectors[bivector] = coefficients
  return bivector
end

local function scaled(b, factor)
  local result = {}
  for mask, coefficient in pairs(bivectors[b]) do result[mask] = coefficient * factor end
  return new_bivector(result)
end

function Bivector.__unm(b) return scaled(b, -1) end

function Bivector.__mul(a, b)
  if not algebra.parts(a) then a, b = b, a end
  if not core.is_expression(b) then
    check.fail("a bivector times %s, a finite number or an expression was expected", check.show(b))
  end
  return scaled(a, b)
end

function Bivector.__div(b, divisor)
  if not algebra.parts(b) or not core.is_expression(divisor) then
    check.fail("a bivector can only be divided by a finite number or an expression")
  end
  return scaled(b, 1 / divisor)
end

function Bivector.__add(a, b)
  if not algebra.parts(a) or not algebra.parts(b) then
    check.fail("a bivector plus %s, a bivector was expected", check.show(algebra.parts(a) and b or a))
  end
  local sum = {}
  for mask, coefficient in pairs(bivectors[a]) do sum[mask] = coefficient end
  for mask, coefficient in pairs(bivectors[b]) do
    if sum[mask] ~= nil then sum[mask] = sum[mask] + coefficient else sum[mask] = coefficient end
  end
  return new_bivector(sum)
end

function Bivector.__sub(a, b)
  if not algebra.parts(b) then check.fail("a bivector minus %s, a bivector was expected", check.show(b)) end
  return a + scaled(b, -1)
end

-- bivector{ e23 = x, e31 = y, e12 = z }: as it stands in R = exp(theta/2 B).
function algebra.bivector(given)
  if type(given) ~= "table" then check.fail("pe.bivector takes coefficients by blade: pe.bivector { e12 = 1 }") end
  local coefficients, any = {}, false
  for name, coefficient in pairs(given) do
    local mask, sign, largest = parse(name)
    if not mask or bits(mask) ~= 2 or largest > core.limits.dimensions then
      check.fail("%s is no bivector; a blade such as e12 was expected", check.show(name))
    end
    if not core.is_expression(coefficient) then
      check.fail("the coefficient of %s is %s, a finite number or an expression was expected", name,
        check.show(coefficient))
    end
    if coefficients[mask] ~= nil then check.fail("bivector %s is listed twice", name_of(mask)) end
    coefficients[mask] = sign == 1 and coefficient or -coefficient
    any = true
  end
  if not any then check.fail("pe.bivector has no coefficients") end
  return new_bivector(coefficients)
end

-- turn "e12": turns e1 towards e2, e1 -> cos(theta) e1 + sin(theta) e2. In the sandwich this is -e12,
-- since exp(theta/2 e12) takes e1 to cos(theta) e1 - sin(theta) e2.
function algebra.turn(name)
  local mask, sign, largest = parse(name)
  if not mask or bits(mask) ~= 2 or largest > core.limits.dimensions then
    check.fail("pe.turn of %s; a plane such as \"e12\" was expected", check.show(name))
  end
  return new_bivector { [mask] = -sign }
end

local QUATERNIONS = { i = "e23", j = "e31", k = "e12" }

-- quaternion "i" | "j" | "k": the right-handed turn about x, y or z of a 3-vector.
function algebra.quaternion(name)
  local plane = QUATERNIONS[name]
  if not plane then check.fail("pe.quaternion of %s; \"i\", \"j\" or \"k\" was expected", check.show(name)) end
  return algebra.turn(plane)
end

---- what a block and its generators ask of one another ----

-- Whether a generator fits the block, and whether it keeps the chosen blades among themselves: e_ij takes
-- a blade with i and without j to the one with j in its place, unless e_i squares to 0. Returns what is wrong, or nil.
function algebra.misfit(block, masks)
  local present = {}
  for _, mask in ipairs(block.masks) do present[mask] = true end
  local degenerate = ((1 << block.dimensions) - 1) & ~((1 << (block.algebra[1] + block.algebra[2])) - 1)
  for _, plane in ipairs(masks) do
    if plane >= 1 << block.dimensions then
      return string.format("turns %s, but the block's algebra has %d dimensions", name_of(plane), block.dimensions)
    end
    for _, blade in ipairs(block.masks) do
      local shared = blade & plane
      if bits(shared) == 1 and shared & degenerate == 0 and not present[blade ~ plane] then
        return string.format("turns %s into %s, which is not in the block: a grade is given whole", name_of(blade),
          name_of(blade ~ plane))
      end
    end
  end
end

return algebra
