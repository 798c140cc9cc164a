-- The option `order`: the axis whose channels come first, then the next. Models that count columns before rows
-- (RoPE-ViT, MAE) have the channels of w before those of h; with order=1,0 positions and grids are (h, w) nevertheless,
-- and the channels are theirs.
local pe = require "pegen"

-- axes: their names. Gives the axes' indices from 1 in the order of their channels.
return function(axes)
  local order = pe.option("order", {}, "axes in the order of their channels, counted from 0; empty: as they are named")
  local list, seen = {}, {}
  if #order ~= 0 and #order ~= #axes then
    error("option 'order' has " .. #order .. " axes, each of the " .. #axes .. " was expected, as in order=1,0")
  end
  for k = 1, #axes do
    local axis = (order[k] or k - 1) + 1
    if not axes[axis] or seen[axis] then
      error("option 'order' has the axis " .. axis - 1 .. ", each from 0 to " .. #axes - 1 .. " was expected once")
    end
    seen[axis], list[k] = true, axis
  end
  return list
end
