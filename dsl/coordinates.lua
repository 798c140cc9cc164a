-- coordinates: the options of encodings whose positions are made of the numbers of cells.
local core = ...
local check = core.include "check"
local options = core.include "options"
local coordinates = {}

-- What cell p of n is, and what further factor a grid has that is larger than that of the training, by `trained` cells:
-- one that goes on in the steps of the training, or, of `resampled`, one that squeezes the cells between them.
local KINDS = {
  given = function(p) return p end,
  inclusive = function(p, n, trained) return p / math.max(n - 1, 1) * (trained and n / trained or 1) end,
  centres = function(p, n, trained) return (p + 0.5) / (trained or n) end,
  signed = function(p, n, trained) return (p + 0.5) / (trained or n) * 2 - 1 end,
  resampled = function(p, n, trained) return p * (trained / n) end,
}

-- The numbers of cells that an option holds, one an axis.
local function counts(name, list, kind, axes)
  if #list ~= #axes then
    check.fail("option 'coordinates' is %s, which needs %s: one number for each of the %d axes", check.show(kind), name,
      #axes)
  end
  local by_axis = {}
  for i, axis in ipairs(axes) do
    if list[i] < 1 then check.fail("option '%s' has %d cells, a positive number was expected", name, list[i]) end
    by_axis[axis] = list[i]
  end
  return by_axis
end

-- coordinates(axes): declares the options coordinates, cells, trained and origin, and returns the map of positions that
-- they ask for, as pe.encoding's field `position` takes it. axes: the names that pe.encoding is given.
function coordinates.coordinates(axes)
  axes = check.list("pe.coordinates", "axes", axes, "names of axes")
  local kind = options.option("coordinates", "given",
    "positions as given; or of cell p of n: inclusive p / (n - 1), centres (p + 1/2) / n, signed centres from -1 to " ..
      "1, resampled p trained / n", { "given", "inclusive", "centres", "signed", "resampled" })
  local made = { needs = { coordinates = { "inclusive", "centres", "signed", "resampled" } } }
  local cells = options.option("cells", {}, "cells n on each axis; what coordinates other than given need", made)
  local trained = options.option("trained", {},
    "cells on each axis in training: coordinates go on beyond them in the same steps, or, resampled, lie between them",
    made)
  local origin = options.option("origin", 0.0, "the position that is not turned, where a skipped token is")
  local needs_trained = kind == "resampled" or #trained > 0
  local cells_of = kind ~= "given" and counts("cells", cells, kind, axes) or {}
  local trained_of = kind ~= "given" and needs_trained and counts("trained", trained, kind, axes) or {}
  return function(axis, r) return KINDS[kind](r, cells_of[axis], trained_of[axis]) - origin end
end

return coordinates
