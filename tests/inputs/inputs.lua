-- Rows that turn by inputs: in phases, amplitudes and generators, of q and of k, with operands of heads and without.
local pe = require "pegen"
local kind = pe.option("kind", "phase", "where inputs stand", { "phase", "amplitude", "sides", "generator", "chordal", "boost" })
local heads = pe.option("heads", 1, "heads that differ")
local D = pe.option("head_dim", 20, "channels per head")
local layout = pe.option("layout", "interleaved", "where components lie", { "interleaved", "split" })
local size = kind == "boost" and 2 or 3
local blocks = D // size

local angle = pe.input { name = "angle", shape = { 2 * blocks }, doc = "angles of blocks, a row for each token", test_scale = 2 }
local strength = pe.input { name = "strength", shape = {}, doc = "one number of a token and head" }
local speed = pe.learned { name = "speed", shape = { "axes", "heads", "blocks" }, doc = "speed of a block", test_scale = 0.5 }

local function gain(r, i) return pe.exp(strength() * pe.sin(r.x) / (i + 1)) + angle(i) ^ 2 end
local function of_k(r, i, head) return 1 + pe.softplus(angle(2 * i)) * pe.exp(-speed("y", head, i)) end
local function vector(axis, i)
  local more = axis == "x" and 0 or 1
  return pe.bivector { e23 = angle(2 * i + more), e31 = 1, e12 = strength() }
end
local turns = { x = pe.quaternion "i", y = pe.quaternion "k" }

return pe.encoding {
  name = "turned_by_inputs",
  axes = { "x", "y" },
  head_dim = D,
  heads = heads,
  layout = layout,
  block = kind == "boost" and pe.multivector { algebra = { 1, 1, 0 }, grades = { 1 } } or pe.vector(3),
  generators = kind == "boost" and pe.bivector { e12 = 1 } or kind == "generator" and vector or turns,
  phase = function(axis, i, head)
    local own = speed(axis, head, i)
    if kind == "amplitude" or kind == "sides" or kind == "generator" then return own end
    return own + (kind == "boost" and 0.1 or 1) * angle(axis == "x" and i or i + blocks) * strength()
  end,
  combine = kind == "chordal" and pe.chordal or kind == "phase" and pe.product { "y", "x" } or kind == "generator" and pe.sum
    or kind == "boost" and pe.sum or pe.symmetric { "x", "y" },
  amplitude = kind == "amplitude" and gain or kind == "sides" and { q = gain, k = of_k } or 1,
}
