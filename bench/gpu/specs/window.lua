-- Attention within a window: a query sees keys that are no further than `radius`. bench/gpu times tiles that are
-- skipped.
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head")
local radius = pe.option("radius", 128, "how far a query sees")

return pe.encoding {
  name = "window",
  doc = "attention within a window (Beltagy et al., Longformer)",
  role = "pairwise",
  axes = { "t" },
  head_dim = D,
  bias = function(d) return pe.where(pe.abs(d.t), radius + 0.5, 0, pe.masked) end,
}
