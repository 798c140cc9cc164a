-- Spindles: an encoding that nobody has published, as an example of how one is tried.
--
-- The idea. GeoPE turns 3-vectors, which mix three channels where RoPE mixes two, but its axes do not commute: scores
-- are not exactly relative. RoPE-Mixed commutes, because every block has one plane. So give every 3-vector one axis of
-- its own, a spindle, and let both coordinates turn about it. Spindles point to the points of a Fibonacci lattice,
-- which covers the sphere evenly, so that no channel is favoured; block i listens to the direction i * golden angle of
-- the image, so that diagonals count as much as rows. What lies along a spindle does not turn: a third of each block is
-- content that no position touches.
--
--   x' = exp(theta U_i) x,  theta = f_i (h cos(phi_i) + w sin(phi_i)),  U_i the turn about spindle i
--
-- `pegen explain` proves that scores are translation invariant, `pegen check` compares the kernel with the reference,
-- and `pegen bench` times it: see "From an idea to a kernel" in README.md.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 100.0, "frequency base")
local lattice = pe.option("lattice", true, "spindles on the lattice; false: all along e3")

local blocks = D // 3
local golden = pe.pi * (3 - math.sqrt(5)) -- radians

-- Unit vector of spindle i.
local function spindle(i)
  if not lattice then return 0, 0, 1 end
  local z = 1 - (2 * i + 1) / blocks
  local radius = math.sqrt(1 - z * z)
  return radius * math.cos(golden * i), radius * math.sin(golden * i), z
end

return pe.encoding {
  name = "spindle",
  doc = "turns of 3-vectors about one axis a block, directions by the golden angle",
  axes = { "h", "w" },
  head_dim = D,
  block = pe.vector(3),
  generators = function(_, i)
    local x, y, z = spindle(i)
    return pe.quaternion "i" * x + pe.quaternion "j" * y + pe.quaternion "k" * z
  end,
  combine = pe.sum,
  phase = function(axis, i)
    local direction = golden * i
    return base ^ (-i / blocks) * (axis == "h" and math.cos(direction) or math.sin(direction))
  end,
}
