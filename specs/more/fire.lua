-- FIRE: a small network of the distance, relative to how far the query sees.
-- "Functional Interpolation for Relative Positions Improves Long Context Transformers" (Li et al.), section 3, eq. 5
-- to 9, and the code of its appendix:
--   bias(i, j) = f(psi(i - j) / psi(max(L, i))), psi(x) = log(c x + 1), f(x) = W2 relu(W1 x + b1) + b2
-- with L, c > 0 and f learned, f of 1 to `width` to H numbers. In causal attention; f is one for all heads but for
-- its last layer. L is the learned factor times the initial threshold of the authors' code.
-- A bias sees differences of coordinates alone; the query's own position is told by a second axis: `here` is the
-- position in `positions` (of queries) and 0 in `k_positions`, so that the difference is its negative.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local heads = pe.option("heads", 12, "heads")
local width = pe.option("width", 32, "hidden units of f")

local function parameter(name, shape, doc, init)
  return pe.learned { name = name, shape = shape, doc = doc, source = "Li et al., appendix", init = init }
end
local c = parameter("c", { 1 }, "factor of distances before the logarithm; its absolute value counts",
  pe.init { value = 0.1 })
local L = parameter("threshold", { 1 }, "L: positions below it are normalised as if there; its absolute value counts",
  pe.init { value = 512 })
local w1 = parameter("w1", { width }, "weights of the first layer", pe.init { uniform = { -1, 1 } })
local b1 = parameter("b1", { width }, "its biases", pe.init { uniform = { -1, 1 } })
local bound = width ^ -0.5
local w2 = parameter("w2", { "heads", width }, "weights of the last layer", pe.init { uniform = { -bound, bound } })
local b2 = parameter("b2", { "heads" }, "its biases", pe.init { uniform = { -bound, bound } })

local function psi(x) return pe.log1p(pe.abs(c(0)) * x) end

return pe.encoding {
  name = "fire",
  doc = "a network of the distance relative to the query's reach (FIRE, Li et al., section 3)",
  axes = { "t", "here" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = heads,
  bias = function(delta, head)
    local x = psi(pe.abs(delta.t)) / (psi(pe.max(pe.abs(L(0)), -delta.here)) + 1e-6)
    return b2(head) + pe.sum(width, function(k) return w2(head, k) * pe.relu(w1(k) * x + b1(k)) end)
  end,
}
