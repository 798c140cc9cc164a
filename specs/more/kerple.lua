-- KERPLE: kernelised relative positions, a bias that falls with the distance as learned.
-- "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation" (Chi et al.), section 4, eq. 6 and 7:
--   logarithmic  -r1 log(1 + r2 |d|), r1, r2 > 0
--   power        -r1 |d|^r2, r1 > 0, 0 < r2 <= 2
-- r1 and r2 of each head. Added to q.k / sqrt(head_dim), in causal attention.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local heads = pe.option("heads", 8, "heads")
local kind = pe.option("kind", "logarithmic", "how the bias falls", { "logarithmic", "power" })

-- Kept above the authors' bound, below which they are clamped.
local function parameter(name, doc, init)
  return pe.learned {
    name = name, shape = { "heads" }, doc = doc, source = "Chi et al., eq. 6 and 7", init = init, test_scale = 2.0,
  }
end
local r1 = parameter("r1", "strength; below 0.01 it counts as 0.01", pe.init { uniform = { 0, 2 } })
local r2 = parameter("r2", "scale of the distance, or its exponent; below 0.01 it counts as 0.01",
  pe.init { uniform = { 0, 1 } })

local function bias(d, head)
  local strength, scale, n = pe.max(r1(head), 0.01), pe.max(r2(head), 0.01), pe.abs(d)
  if kind == "logarithmic" then return -strength * pe.log1p(scale * n) end
  return -strength * pe.where(0, n, pe.exp(scale * pe.log(pe.max(n, 1e-30))), 0)
end

return pe.encoding {
  name = "kerple",
  doc = "biases that fall with the distance as learned (KERPLE, Chi et al., eq. 6 and 7)",
  axes = { "t" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = heads,
  bias = function(delta, head) return bias(delta.t, head) end,
}
