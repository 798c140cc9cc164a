-- A change of basis of the whole head before blocks of every kind that has a closed form, with channels that are
-- in no block, an amplitude, and a basis for each head. Skipped tokens are in the generators' basis, too.
local pe = require "pegen"
local kind = pe.option("kind", "plane", "what turns",
  { "plane", "vector", "dense3", "dense4", "boost", "mixed", "screw", "shear" })
local heads = pe.option("heads", 1, "heads")
local each = pe.option("each", false, "a basis for each head")
local layout = pe.option("layout", "interleaved", "order of a block's channels", { "interleaved", "split" })

-- What leaves no length alone: a boost of a plane; boosts and a turn that do not commute, of vectors and bivectors;
-- screws, and shears that a turn carries about, of vectors and of what stands for points (grade 3).
local stretching = {
  boost = { algebra = { 1, 1, 0 }, grades = { 1 }, h = pe.bivector { e12 = 1 } },
  mixed = { algebra = { 2, 1, 0 }, grades = { 1, 2 }, h = pe.bivector { e12 = 1, e13 = 0.3 },
    w = pe.bivector { e23 = 0.5 } },
  screw = { algebra = { 3, 0, 1 }, grades = { 3 }, h = pe.bivector { e12 = 1, e34 = 0.5 },
    w = pe.bivector { e23 = 1 } },
  shear = { algebra = { 2, 0, 1 }, grades = { 1, 2 }, h = pe.bivector { e13 = 1 },
    w = pe.bivector { e12 = 1, e23 = 0.5 } },
}
local size = ({ plane = 2, vector = 3, dense3 = 3, dense4 = 4 })[kind]
local stretch = stretching[kind]
local dense = kind == "dense3" or kind == "dense4"
local S = pe.learned.skew(27, { name = "S", shape = each and { "heads" } or {}, from = "difference",
  doc = "change of basis" })
local A = dense and pe.learned.skew(size, { name = "A", shape = { "axes", "heads", "blocks" }, from = "upper",
  doc = "raw" })
local block, generators = pe.plane(), pe.turn "e12"
if dense then block, generators = pe.dense(size), A end
if kind == "vector" then block, generators = pe.vector(3), { h = pe.turn "e12", w = pe.turn "e12" * 2 } end
if stretch then
  block = pe.multivector { algebra = stretch.algebra, grades = stretch.grades }
  generators = { h = stretch.h, w = stretch.w or stretch.h }
end

return pe.encoding {
  name = "after_a_basis",
  doc = "turns after a change of basis",
  axes = { "h", "w" },
  head_dim = 27,
  heads = heads,
  span = { 3, 22 },
  layout = layout,
  block = block,
  generators = generators,
  combine = stretch and pe.product { "h", "w" } or pe.sum,
  phase = dense and 1 or pe.learned { name = "freqs", shape = { "axes", "heads", "blocks" }, doc = "frequencies" },
  amplitude = 1.25,
  basis = pe.cayley(S),
}
