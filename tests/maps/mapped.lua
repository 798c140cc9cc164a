-- Maps of channels in every kind of kernel that has them: channels that pass through, components that do not turn,
-- operands by head, parts of a head, rows that turn by inputs, another factor of q than of k.
local pe = require "pegen"

local kind = pe.option("kind", "planes", "which description",
  { "planes", "vectors", "multivectors", "parts", "inputs", "sides" })
local map = pe.option("map", "softplus", "what becomes of a channel",
  { "softplus", "sigmoid", "relu", "cubic", "tanh", "kink", "wave", "root", "same" })

local maps = {
  softplus = pe.softplus,
  sigmoid = pe.sigmoid,
  relu = pe.relu,
  cubic = function(x) return x ^ 3 - x + 0.25 end,
  tanh = function(x) return 3 * pe.tanh(x / 2) end,
  kink = function(x) return pe.where(x, -0.25, -x / 4, pe.max(x, 0.125)) end,
  wave = function(x) return pe.sin(2 * x) + pe.cos(x) * x end,
  root = function(x) return x / pe.sqrt(1 + x * x) end,
  same = function(x) return x end,
}
local function pre(x) return maps[map](x) end

local function spread(_, i) return 2 ^ -i end
local description = { name = "mapped", axes = { "t" }, head_dim = 22, combine = pe.sum, phase = spread, pre = pre }
local function say(fields)
  for name, value in pairs(fields) do description[name] = value end
end

if kind == "planes" then
  say { block = pe.plane(), generators = pe.turn "e12", layout = "split", span = { 3, 16 } }
elseif kind == "vectors" then
  local axis = pe.learned { name = "axis", shape = { "axes", "heads", "blocks", 3 }, doc = "bivectors" }
  say {
    axes = { "h", "w" }, heads = 2, block = pe.vector(3), combine = pe.product { "h", "w" },
    generators = function(a, i, head)
      return pe.bivector { e23 = axis(a, head, i, 0), e31 = axis(a, head, i, 1), e12 = axis(a, head, i, 2) }
    end,
  }
elseif kind == "multivectors" then
  say {
    head_dim = 8 * 40 + 5, axes = { "x" },
    block = pe.multivector { algebra = { 3, 0, 0 }, blades = { "1", "e1", "e2", "e12", "e3", "e31", "e23", "e123" } },
    generators = pe.turn "e12",
  }
elseif kind == "parts" then
  say {
    axes = { "t", "h", "w" }, block = false, generators = false, phase = false, pre = false, combine = false,
    parts = {
      { span = { 0, 8 }, axes = { "t" }, block = pe.plane(), generators = pe.turn "e12", phase = spread },
      {
        span = { 9, 12 }, axes = { "h", "w" }, block = pe.vector(3), combine = pe.mean,
        generators = { h = pe.quaternion "j", w = pe.quaternion "k" }, phase = spread, pre = pre,
      },
    },
  }
elseif kind == "inputs" then
  local step = pe.input { name = "step", shape = { 4 }, doc = "angles of each token", test_scale = 1 }
  say { block = pe.plane(), generators = pe.turn "e12", phase = function(_, i) return step(i % 4) end }
elseif kind == "sides" then
  say {
    block = pe.plane(), generators = pe.turn "e12",
    amplitude = { q = function(r) return pe.exp(r.t / 8) end, k = function(r) return pe.exp(-r.t / 8) end },
  }
end
for name, value in pairs(description) do
  if value == false then description[name] = nil end
end

return pe.encoding(description)
