-- coordinates: the options of encodings whose positions are meant to lie in [0, 1].
local core = ...
local check = core.include "check"
local options = core.include "options"
local coordinates = {}

-- coordinates(axes): declares the options coordinates, cells and origin, and returns the map of positions that they ask
-- for, as pe.encoding's field `position` takes it. axes: the names that pe.encoding is given.
function coordinates.coordinates(axes)
  axes = check.list("pe.coordinates", "axes", axes, "names of axes")
  local kind = options.option("coordinates", "given",
    "positions as given; or from cells p of n: p / (n - 1) in [0, 1], or their centres (p + 1/2) / n", { "given",
      "inclusive", "centres" })
  local cells = options.option("cells", {}, "cells n on each axis; what coordinates other than given need")
  local origin = options.option("origin", 0.0, "the position that is not turned, where a skipped token is")
  if kind ~= "given" and #cells ~= #axes then
    check.fail("option 'coordinates' is %s, which needs cells: one number for each of the %d axes", check.show(kind),
      #axes)
  end
  local cells_of = {}
  for i, axis in ipairs(axes) do cells_of[axis] = cells[i] end
  return function(axis, r)
    local n = cells_of[axis]
    if kind == "inclusive" then r = r / math.max(n - 1, 1) end
    if kind == "centres" then r = (r + 0.5) / n end
    return r - origin
  end
end

return coordinates
