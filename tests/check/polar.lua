-- Coordinates that a position is made of together: log-polar ones of the plane, spherical ones of space; with learned
-- speeds, so that operands and positions gain through them.
local pe = require "pegen"
local P = pe.option("axes", 2, "axes of a position", { 2, 3 })
local kind = pe.option("kind", "rotors", "what turns", { "rotors", "pairs", "triples" })
local axes = P == 2 and { "x", "y" } or { "x", "y", "z" }
local speed = pe.learned { name = "speed", shape = { "axes", "blocks" }, doc = "speed of a block on a coordinate" }

local function polar(r)
  local plane = r.x ^ 2 + r.y ^ 2
  local angle = pe.atan2(r.y, r.x)
  if P == 2 then return { pe.log(1 + plane) / 2, angle } end
  return { pe.sqrt(1 + plane + r.z ^ 2), angle, pe.atan2(r.z, pe.sqrt(1 + plane)) }
end

return pe.encoding {
  name = "polar",
  axes = axes,
  head_dim = 24,
  block = kind == "triples" and pe.vector(3) or pe.plane(),
  generators = function(axis)
    if kind ~= "triples" then return pe.turn "e12" end
    return pe.quaternion(({ x = "i", y = "j", z = "k" })[axis])
  end,
  combine = pe.sum,
  phase = speed,
  position = polar,
  role = kind == "pairs" and "pairwise" or "separable",
  bias = kind == "pairs" and function(d) return -pe.tanh(pe.norm(d) / 4) end or nil,
}
