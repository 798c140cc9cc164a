-- Learned absolute positions: a trained vector for each cell is added to the embedding of its token.
-- "An Image is Worth 16x16 Words" (Dosovitskiy et al.), section 3.1 and, of other resolutions, 3.2. It is the baseline
-- of GeoPE, LieRE, ComRoPE, CARE and PaPE.
--
-- A position is a cell's number and need not be whole. What lies between cells is interpolated from its neighbours, at
-- the edges from the edge: linear, or cubic with -3/4, as PyTorch's `interpolate` does. image=20,20 says that positions
-- are cells of a grid of that size, p of n cells becomes (p + 1/2) m / n - 1/2 of m trained ones.
--
-- The weights of all cells are computed, most are 0: costs grow with the table. Beyond some 200 cells, resample the
-- table beforehand and add it. A class token has a vector of its own (skip_tokens).
local pe = require "pegen"

local C = pe.option("channels", 64, "channels of the embedding")
local P = pe.option("axes", 2, "axes of a position: t; h, w; or d, h, w", { 1, 2, 3 })
local cells = pe.option("table", {}, "cells of the table, one number an axis; empty: 4 on each")
local image = pe.option("image", {}, "cells of the grid that positions count; empty: those of the table")
local rule = pe.option("interpolation", "linear", "between cells: of 2 neighbours on an axis, or of 4",
  { "linear", "cubic" })

local axes = ({ { "t" }, { "h", "w" }, { "d", "h", "w" } })[P]
local sizes = {}
for a = 1, P do sizes[a] = cells[a] or 4 end
for name, list in pairs { table = cells, image = image } do
  if #list ~= 0 and #list ~= P then
    error("option '" .. name .. "' has " .. #list .. " numbers, one for each of " .. P .. " axes was expected")
  end
  for _, n in ipairs(list) do
    if n < 1 then error("option '" .. name .. "' has " .. n .. " cells, 1 or more were expected") end
  end
end

local shape = { table.unpack(sizes) }
shape[P + 1] = C
local vectors = pe.learned {
  name = "vectors",
  shape = shape,
  doc = "what is added at each cell",
  source = "Dosovitskiy et al., section 3.1",
  init = pe.init { normal = 0.02, between = { -0.04, 0.04 }, doc = "normal, deviation 0.02, cut at two of them" },
}

-- How much of a cell there is at distance x.
local function linear(x) return pe.max(0, 1 - pe.abs(x)) end
local function cubic(x) -- Keys' kernel with a = -3/4
  local v = pe.max(0, 2 - pe.abs(x))
  return 0.75 * v * v * (v - 1) - 2 * linear(x) ^ 3
end
local kernel = rule == "linear" and linear or cubic
local reach = rule == "linear" and 1 or 2

-- A list of the weights of an axis' cells. Those that the neighbourhood has beyond an edge count for the cell there.
local function weights(r, a)
  local n, list = sizes[a], {}
  local x = image[a] and (r[a] + 0.5) * (n / image[a]) - 0.5 or r[a]
  x = pe.max(-reach / 2, pe.min(n - 1 + reach / 2, x))
  for i = 0, n - 1 do list[i] = kernel(x - i) end
  for beyond = 1, reach == 1 and 1 or 2 do
    list[0] = list[0] + kernel(x + beyond)
    list[n - 1] = list[n - 1] + kernel(x - (n - 1 + beyond))
  end
  return list
end

return pe.encoding {
  name = "learned_absolute",
  doc = "a trained vector for each cell, added to the embedding (Dosovitskiy et al., section 3.1)",
  axes = axes,
  head_dim = C,
  add = function(r, channel)
    local of_axis, index = {}, {}
    for a = 1, P do of_axis[a] = weights(r, a) end
    local function sum(a)
      if a > P then
        index[a] = channel
        return vectors(table.unpack(index))
      end
      local total = 0
      for i = 0, sizes[a] - 1 do
        index[a] = i
        total = total + of_axis[a][i] * sum(a + 1)
      end
      return total
    end
    return sum(1)
  end,
}
