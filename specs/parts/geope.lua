-- What geope1d.lua, geope2d.lua, geope3d.lua and lingeope.lua share: the schedule of phases, and how rotors of
-- axes become one.
--
-- Schedule: theta = r * base^(2i/d) radians (GeoPE, section 3.1). The paper prints frequencies that grow, and counts i
-- from 1 in section 3.1 and from 0 in appendix E; d is the embedding's, 768 in section 4, or the head's. With first=1
-- or schedule_dim=768 it is the other reading. Triples that cross heads are those of head_dim=768.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local base = pe.option("base", 100.0, "frequency base lambda", { range = { 2.0, 1e6 } })
local sign = pe.option("exponent_sign", 1, "+1: frequencies grow, as printed; -1: they decay, as in RoPE", { 1, -1 })
local first = pe.option("first", 0, "number of the first block in exponents", { 0, 1 })
local dim = pe.option("schedule_dim", 0, "channels that exponents count, d; 0: head_dim")
if dim < 0 then error("option 'schedule_dim' is " .. dim .. "; 0 or more was expected") end
local d = dim > 0 and dim or D

return {
  head_dim = D,
  phase = function(_, i) return base ^ (sign * 2 * (i + first) / d) end,
  layout_of_triples = function()
    return pe.option("layout", "interleaved", "triples (3i, 3i+1, 3i+2) or (i, i + n, i + 2n)", { "interleaved",
      "split" })
  end,
  -- The paper's average is the exponential of the mean of the generators. The others are what it sets aside (a product
  -- prefers an axis), the generators' sum, and means of rotations: the nearest to their average, or Riemann's.
  combine_of = function(axes)
    local mean = pe.option("mean", "generators",
      "of generators, as in the paper; of rotations: chordal, karcher; or no mean: sum, product, symmetric",
      { "generators", "chordal", "karcher", "sum", "product", "symmetric" })
    local steps = pe.option("steps", 8, "of mean=karcher: steps from the chordal mean",
      { needs = { mean = "karcher" } })
    return ({
      generators = pe.mean,
      chordal = pe.chordal,
      karcher = pe.karcher { steps = steps },
      sum = pe.sum,
      product = pe.product(axes),
      symmetric = pe.symmetric(axes),
    })[mean]
  end,
}
