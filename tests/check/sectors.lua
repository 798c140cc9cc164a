-- A bias by sectors of the direction: whole displacements lie on their edges, of which float32, float64 and long double
-- each have another side.
local pe = require "pegen"
local by_sector = pe.learned { name = "by_sector", shape = { 4, 12 }, doc = "by log radius and sector" }

return pe.encoding {
  name = "sectors",
  doc = "a bias by the radius and direction of a displacement",
  axes = { "h", "w" },
  head_dim = 16,
  bias = function(d)
    local radius = pe.min(pe.floor(pe.log(1 + d.h * d.h + d.w * d.w)), 3)
    local sector = pe.floor((pe.atan2(d.h, d.w) + pe.pi) / (2 * pe.pi) * 12)
    return by_sector(radius, pe.min(sector, 11))
  end,
}
