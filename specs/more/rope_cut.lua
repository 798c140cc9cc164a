-- RoPE of a head that is padded to whole pairs of all axes, turned, and cut again, as a baseline of PaPE's code is.
-- "Where to Attend: A Principled Vision-Centric Position Encoding with Parabolas" (PaPE), section 5.1, and the authors'
-- code (DTU-PAS/parabolic-position-encoding, positions/rope.py): D channels and zeros are n, the next multiple of 2P;
-- pair j of n/2 is (j, j + n/2) and turns by base^(-2P(j mod m)/n) r_a, a = floor(j/m), m = n/(2P). Where the
-- second channel of a pair lies beyond the head,
--   y_j = cos(angle) x_j
-- is what is left: they do not turn, norms are not kept, and scores of these channels are not relative.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head, an even number")
local P = pe.option("axes", 3, "axes of a position: h, w or t, h, w", { 2, 3 })
local base = pe.option("base", 10000.0, "frequency base")

if D % 2 == 1 then error("option 'head_dim' is " .. D .. ", an even number was expected") end
if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end
local axes = P == 2 and { "h", "w" } or { "t", "h", "w" }
local n = (D + 2 * P - 1) // (2 * P) * (2 * P)
local half, m = n // 2, n // (2 * P)
local whole = D - half -- pairs with both channels; the others' first ones go two by two into blocks of their own
if whole < 0 then error("option 'head_dim' is " .. D .. ", at least " .. half .. " was expected") end

-- The angle of a pair at r.
local function angle(j, r)
  local sum = 0
  for a, axis in ipairs(axes) do sum = sum + (a == j // m + 1 and base ^ (-2 * P * (j % m) / n) or 0) * r[axis] end
  return sum
end

-- The pair that a component of a block belongs to.
local function pair(c, i) return i < whole and i or whole + 2 * (i - whole) + c end

return pe.encoding {
  name = "rope_cut",
  doc = "RoPE of a head that is padded to whole pairs of all axes and cut (a baseline of PaPE's)",
  axes = axes,
  head_dim = D,
  block = pe.linear(2),
  layout = function(c, i) return i < whole and i + c * half or pair(c, i) end,
  matrix = function(r, i)
    local a, b = angle(pair(0, i), r), angle(pair(1, i), r)
    local turns = i < whole and 1 or 0
    return { { pe.cos(a), -turns * pe.sin(a) }, { turns * pe.sin(b), pe.cos(b) } }
  end,
}
