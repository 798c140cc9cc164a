-- Slopes that are learned, one a head, positive however they are set, and a gain that all heads share: gradients of
-- operands that stand by themselves.
local pe = require "pegen"

local slope = pe.learned { name = "slope", shape = { "heads" }, doc = "of each head's penalty, before softplus" }
local gain = pe.learned { name = "gain", shape = { "axes" }, doc = "of what is added along each axis" }

return pe.encoding {
  name        = "slopes",
  axes        = { "h", "w" },
  head_dim    = pe.option("head_dim", 64, "channels"),
  heads       = pe.option("heads", 8, "heads"),
  role        = "pairwise",
  bias        = function(delta, head)
    local near = pe.where(delta.h * delta.h, 9, gain(1) * delta.h, gain(0) * pe.cos(delta.w))
    return near - pe.softplus(slope(head)) * pe.norm(delta)
  end,
}
