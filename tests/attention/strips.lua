-- A score with parts that are made of the query and one coordinate of the key, beside others.
local pe = require "pegen"
local rows = pe.input { name = "rows", shape = { 7 }, doc = "a row of the query" }
local of_key = pe.input { name = "of_key", shape = { 5 }, of = "key", doc = "a row of the key" }
local own = pe.input { name = "own", shape = {}, doc = "a number of the query" }
local slope = pe.learned { name = "slope", shape = { "heads", 9 }, doc = "numbers of displacements" }

return pe.encoding {
  name = "strips", axes = { "h", "w" }, head_dim = 16, heads = 4, role = "pairwise",
  score = function(s, d, h)
    local far = pe.exp(-0.1 * pe.abs(d.h) * own() ^ 2) -- these and the next two are such parts
    local of_rows = rows(2 + d.w) * own() + rows(d.h / 2) + slope(h, 4 - d.w)
    local both = pe.where(d.h, 3, 0, rows(d.w + d.h))
    return s * far + of_rows + both + of_key(d.h)
  end,
}
