-- Gradients of positions whose terms cancel: cubic weights of knots add to 1 everywhere, and knots are alike.
local pe = require "pegen"
local kind = pe.option("kind", "turned", "what is interpolated", { "turned", "chordal", "added" })
local KNOTS, LAST = 0.5, 3

local function cubic(x) -- Keys' kernel with a = -3/4
  local v = pe.max(0, 2 - pe.abs(x))
  return 0.75 * v * v * (v - 1) - 2 * pe.max(0, 1 - pe.abs(x)) ^ 3
end

local function interpolated(r)
  local x, sum = pe.max(-1, pe.min(LAST + 1, r)), 0
  for i = -2, LAST + 2 do sum = sum + cubic(x - i) * KNOTS end
  return sum
end

local described = { name = "cancel", axes = { "h", "w" } }
if kind == "added" then
  described.head_dim = 3
  described.add = function(r, channel) return interpolated(r.h) + interpolated(r.w) * (channel + 1) end
else
  described.head_dim = kind == "turned" and 8 or 7
  described.block = pe.vector(kind == "turned" and 2 or 3)
  described.generators = kind == "turned" and pe.turn "e12" or { h = pe.turn "e12", w = pe.turn "e23" }
  described.combine = kind == "turned" and pe.sum or pe.chordal
  described.position = function(_, r) return interpolated(r) end
  described.phase = function(_, i) return 10 ^ -i end
end
return pe.encoding(described)
