-- Powers with a learned exponent, and what saturates: values are finite where logarithms and quotients inside are not.
-- Every token has itself among its keys, and the first stands at the origin.
local pe = require "pegen"

local kind = pe.option("kind", "power", "what is learned", { "power", "bump", "gate", "saturated" })
local place = pe.option("place", "pair", "of which it is a function", { "pair", "token" })
local p = pe.learned { name = "p", shape = { "heads" }, doc = "exponent; below 0.5 it counts as 0.5", test_scale = 2.0 }

local function value(n, head)
  local exponent = pe.max(p(head), 0.5)
  if kind == "power" then return n ^ exponent end
  if kind == "bump" then return pe.exp(-exponent / (n * n)) end
  if kind == "gate" then return 1 / (1 + pe.exp(exponent / n)) end
  return pe.tanh(exponent * pe.log(n))
end

local encoding = {
  name = "powers",
  doc = "biases and amplitudes that are powers of a distance or a position",
  axes = { "t" },
  head_dim = 8,
  heads = 2,
}
if place == "pair" then
  encoding.value_dim = 8
  encoding.bias = function(delta, head) return -value(pe.abs(delta.t), head) end
else
  encoding.block = pe.plane()
  encoding.generators = pe.turn "e12"
  encoding.phase = 1
  encoding.amplitude = function(r, _, head) return 2 + value(pe.abs(r.t), head) end
end
return pe.encoding(encoding)
