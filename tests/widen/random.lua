-- A random bias of attention: coefficients are numbers, operands, inputs and products of them; some monomials are left
-- out.
local pe = require "pegen"

local state = pe.option("seed", 1, "of the random choices")
local role = pe.option("role", "separable", "columns, or attention with the bias in it", { "separable", "pairwise" })
local function below(n)
  state = (state * 1103515245 + 12345) % 2 ^ 31
  return math.floor(state / 65536) % n
end

local P = 1 + below(4)
local degree = 1 + below(P > 2 and 2 or 4)
local terms = ({ 1, 2, 3, 5, 8, 16, 19, 40, 150 })[1 + below(9)]
local heads = below(2) == 0 and 1 or 2
local axes = {}
for i = 1, P do axes[i] = ({ "t", "d", "h", "w" })[i] end

local learned = pe.learned { name = "learned", shape = { "heads", terms, "axes" }, doc = "projection",
  test_scale = 0.3 }
local gain = pe.learned { name = "gain", shape = { terms }, doc = "gain of a term" }
local free = pe.input { name = "free", shape = { terms }, doc = "coefficient", test_scale = 0.5 }
local one = pe.input { name = "one", shape = {}, doc = "coefficient of the token", test_scale = 0.5 }

-- What the terms of the sum are multiplied with; one choice for all of them.
local choices = {}
for power = 1, degree do choices[power] = below(5) end
choices[degree] = 1 + below(4)
local reversed = below(2) == 1
-- Numbers of the key, by which some powers are multiplied: inside attention alone.
local of_key = {}
for power = 1, role == "pairwise" and degree or 0 do
  local element = below(6)
  if choices[power] > 0 and element < 3 then
    local key = pe.input { name = "key" .. power, shape = element == 0 and {} or { 3 }, of = "key",
      doc = "factor of the key", test_scale = 2 }
    of_key[power] = function() return element == 0 and key() or key(element) end
  end
end

local function coefficient(power, l, head)
  local i = reversed and terms - 1 - l or l
  local choice = choices[power]
  if choice == 1 then return free(i) end
  if choice == 2 then return -pe.softplus(free(i)) * gain(l) end
  if choice == 3 then return one() * (0.25 + gain(l)) - learned(head, l, 0) / 4 end
  return 0.3 * (l % 3 - 1) + 0.1
end
local function product(power, l, head)
  local own = coefficient(power, l, head)
  return of_key[power] and own * of_key[power]() or own
end

return pe.encoding {
  name = "random_bias",
  role = role,
  axes = axes,
  head_dim = 8 * (1 + below(5)) + below(3),
  heads = heads,
  bias = pe.polynomial {
    degree = degree,
    terms = terms,
    value = function(delta, l, head)
      local x, sum = 0, 0
      for _, axis in ipairs(axes) do x = x + learned(head, l, axis) * delta[axis] end
      for power = 1, degree do
        if choices[power] > 0 then sum = sum + product(power, l, head) * x ^ power end
      end
      return sum + (P > 1 and delta[axes[1]] * delta[axes[2]] * (degree > 1 and 0.02 or 0) or 0)
    end,
  },
}
