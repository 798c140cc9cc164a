-- A network of logarithmic displacements as a bias (Swin Transformer V2, equation 4): as many hidden units as are asked
-- for cost a loop.
local pe = require "pegen"
local width = pe.option("width", 512, "hidden units")
local function learned(name, shape, bound)
  return pe.learned { name = name, shape = shape, doc = "weights", init = pe.init { uniform = { -bound, bound } } }
end
local w1, b1, w2 = learned("w1", { width, 2 }, 1), learned("b1", { width }, 1), learned("w2", { "heads", width }, 0.1)

local function signed_log(x) return pe.log1p(pe.max(x, 0)) - pe.log1p(pe.max(-x, 0)) end

return pe.encoding {
  name = "log_cpb",
  axes = { "h", "w" },
  head_dim = 32,
  heads = 2,
  bias = function(delta, head)
    local y, x = signed_log(delta.h), signed_log(delta.w)
    return 16 * pe.sigmoid(pe.sum(width, function(k)
      return w2(head, k) * pe.relu(w1(k, 0) * y + w1(k, 1) * x + b1(k))
    end))
  end,
}
