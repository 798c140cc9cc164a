-- Masks of all kinds over two axes, of which `kind` says one: biases, or beside a bias that is a polynomial.
local pe = require "pegen"

local kind = pe.option("kind", "window", "which mask",
  { "window", "document", "ring", "corner", "learned", "dilated", "table", "clamped", "nested", "never", "logarithm",
    "sliding" })
local columns = pe.option("columns", false, "beside a polynomial, a mask for all heads")
local radius = pe.learned { name = "radius", shape = { "heads" }, doc = "how far a head sees", test_scale = 9.0 }
local open = pe.learned { name = "open", shape = { 8, "heads" }, doc = "whether a lag is seen" }

local masks = {
  window = function(d) return pe.where(pe.abs(d.t), 5, -0.1 * pe.abs(d.t), pe.masked) end,
  document = function(d, h) return pe.where(pe.abs(d.s), 0.5, -(0.5 + h) * pe.abs(d.t), pe.masked) end,
  ring = function(d) return pe.where(pe.norm(d), 7.5, pe.where(pe.norm(d), 1.5, pe.masked, 0.25 * d.t), pe.masked) end,
  corner = function(d, h) return pe.where(d.t * (1 - 2 * h) + 0.5 * d.s, 1.25, pe.masked, 0.5) end,
  learned = function(d, h) return pe.where(pe.abs(d.t), radius(h), -pe.abs(d.s), pe.masked) end,
  dilated = function(d) return pe.where(d.t - 3 * pe.floor(d.t / 3), 0.5, -0.1 * pe.abs(d.t), pe.masked) end,
  table = function(d, h) return pe.where(pe.abs(d.t), 6, open(d.t + 3, h), pe.masked) end,
  clamped = function(d)
    return pe.max(pe.where(pe.abs(d.t), 4, 0, pe.masked), pe.where(pe.abs(d.s), 1, -2, pe.masked))
  end,
  nested = function(d)
    local near = pe.where(d.s, 2, pe.where(-d.t, 0.5, d.s, 0.5), pe.masked)
    return pe.where(pe.abs(d.t), 9, near, pe.masked) - 1
  end,
  never = function(d) return pe.max(pe.where(pe.abs(d.t), 4, 0, pe.masked), -3) end,
  sliding = function(d) return pe.where(pe.abs(d.t + 20), 23.5, 0.01 * d.t, pe.masked) end,
  logarithm = function(d)
    local lag = pe.log1p(pe.abs(d.t)) * pe.exp(-0.01 * pe.abs(d.s))
    return pe.where(lag, 1.7, pe.sin(d.s), pe.masked)
  end,
}

local parabola = pe.polynomial {
  degree = 2,
  value = function(d, term, head) return -0.03125 * d.t ^ 2 - 0.125 * (1 + head) * d.s end,
}

return pe.encoding {
  name = "masked",
  axes = { "s", "t" },
  head_dim = pe.option("head_dim", 16, "channels"),
  heads = 2,
  role = "pairwise",
  bias = columns and parabola or function(delta, head) return masks[kind](delta, head) end,
  score = columns and function(s, delta) return s + masks[kind](delta, 0) end or nil,
}
