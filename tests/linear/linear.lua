-- Blocks whose matrix the description writes, of every size and kind: some entries are 0, some do not turn.
local pe = require "pegen"

local n = pe.option("n", 2, "channels of a block", { 1, 2, 3, 4 })
local kind = pe.option("kind", "both", "of q and k alike, of each, of inputs, or in parts",
  { "both", "sides", "inputs", "parts" })
local heads = pe.option("heads", 1, "heads that differ")
local layout = pe.option("layout", "interleaved", "of channels", { "interleaved", "split" })

local D = 30 -- no multiple of 4: channels are left over
local angle = pe.learned { name = "angle", shape = { "heads", 30, 2 }, doc = "angles a unit of x, of y" }
local camera = kind == "inputs" and pe.input { name = "camera", shape = { n * n }, doc = "a factor of every entry" }

local function matrix(size, sense)
  return function(r, i, head)
    local rows = {}
    for a = 1, size do
      rows[a] = {}
      for b = 1, size do
        local x = angle(head, i, 0) * r.x * (a + sense * b) + angle(head, i, 1) * r.y
        rows[a][b] = (a == b and 1 or 0) + pe.sin(x) * (camera and camera((a - 1) * size + b - 1) or i + 1)
        if size > 2 and a == 1 and b == size then rows[a][b] = 0 end
        if size > 2 and a == 2 and b == 1 then rows[a][b] = 0.5 end
      end
    end
    return rows
  end
end

local fields = { name = "linear", doc = "matrices of its own", axes = { "x", "y" }, head_dim = D, heads = heads }
if kind == "parts" then
  fields.parts = {
    {
      span = { 0, 12 }, axes = { "x" }, block = pe.plane(), layout = layout, generators = pe.turn "e12",
      phase = function(_, i, head) return angle(head, i, 0) end,
    },
    { span = { 12, 9 }, block = pe.linear(3), layout = layout, matrix = matrix(3, 1) },
    {
      span = { 21, 8 }, axes = { "y" }, block = pe.linear(1),
      matrix = function(r, i, head) return { { pe.cos(angle(head, i, 1) * r.y) } } end,
    },
  }
else
  fields.block, fields.layout = pe.linear(n), layout
  fields.matrix = kind == "sides" and { q = matrix(n, 1), k = matrix(n, -2) } or matrix(n, 1)
end
return pe.encoding(fields)
