-- Blocks that commute beside blocks that do not: an encoding that nobody has published, for studies/mixed_blocks.toml.
--
-- The idea. Scores of blocks that commute are relative to the bit and say nothing of where a pair lies; blocks that do
-- not commute break that, and can tell where a pair lies. A head that has both can take either. Every 3-vector turns
-- about e3 for both axes of the image, as a plane with a channel that stays, or (every second one, with mixture = 2)
-- about j for rows and about k for columns, as GeoPE's. mixture = 1: none commutes; 0: all do.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 100.0, "frequency base")
local mixture = pe.option("mixture", 2, "every so many-th block does not commute; 0: none of them", { 0, 1, 2, 3 })

local blocks = D // 3
local golden = pe.pi * (3 - math.sqrt(5)) -- radians

local function is_free(i) return mixture > 0 and i % mixture == 0 end

return pe.encoding {
  name = "mixed_blocks",
  doc = "turns of 3-vectors about one axis beside turns about two",
  axes = { "h", "w" },
  head_dim = D,
  block = pe.vector(3),
  generators = function(axis, i)
    if is_free(i) then return axis == "h" and pe.quaternion "j" or pe.quaternion "k" end
    return pe.quaternion "k"
  end,
  combine = pe.mean,
  phase = function(axis, i)
    local speed = base ^ (-i / blocks)
    if is_free(i) then return speed end
    -- Each block that commutes listens to a direction of its own, as in examples/new_encoding.lua.
    return 2 * speed * (axis == "h" and math.cos(golden * i) or math.sin(golden * i))
  end,
}
