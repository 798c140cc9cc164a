-- Swin's shifted windows: a bias by displacement inside a window; pairs of different windows do not see each other.
-- "Swin Transformer" (Liu et al.), section 3.2, eq. 4, with the windows of its figure 4. The authors roll the image by
-- the shift, cut it into windows and mask what came together by the rolling; what may see each other is the same as
-- where windows lie shifted in the image as it is and those at its rim are cut off. So tokens keep their h and w, and a
-- third coordinate is the number of their window (any numbers that differ, whole ones below 2^24):
--   floor((h + window - shift) / window) * (more than there are across) + floor((w + window - shift) / window).
-- Tokens in the order of their windows are the fastest: windows that a tile of queries does not see are skipped.
--
-- cosine: "Swin Transformer V2" (Liu et al., 2022), equation 2: rows of q and k have length 1 (the caller divides by
-- their norms), the temperature tau of a head is learned, and `scale` is 1. The table is then what the network of
-- equation 3 makes of log-spaced displacements, 16 sigmoid(mlp(..)) in the authors' code: once a step, by the caller.
local pe = require "pegen"

local D = pe.option("head_dim", 32, "channels per head")
local heads = pe.option("heads", 4, "heads")
local Dv = pe.option("value_dim", 0, "channels of a value; 0: head_dim")
local H = pe.option("window_h", 7, "height of a window")
local W = pe.option("window_w", 7, "width of a window")

local table = pe.learned {
  name = "relative_position_bias_table",
  shape = { 2 * H - 1, 2 * W - 1, "heads" },
  doc = "bias by displacement, query less key; the authors' [(2H-1)(2W-1), heads] is the same memory",
  source = "Liu et al., eq. 4",
  init = pe.init { normal = 0.02, between = { -2, 2 }, doc = "normal, standard deviation 0.02, truncated at 2" },
}

local cosine = pe.option("cosine", false, "scores are cosines by a learned temperature (Swin V2): q and k of length 1")
local warmth = cosine and pe.learned {
  name = "logit_scale",
  shape = { "heads" },
  doc = "logarithm of 1 / tau, clamped at log 100",
  source = "Liu et al. 2022, equation 2",
  init = pe.init { value = 2.302585092994046, doc = "log 10, as the authors' code" },
}

local function bias_of(delta, head)
  return pe.where(pe.abs(delta.window), 0.5, table(H - 1 - delta.h, W - 1 - delta.w, head), pe.masked)
end

return pe.encoding {
  name = "swin",
  doc = "biases of displacements in shifted windows (Swin, Liu et al., section 3.2)",
  axes = { "h", "w", "window" },
  head_dim = D,
  value_dim = Dv > 0 and Dv or D,
  heads = heads,
  models = {
    { "Swin-T (first stage, shifted windows)", "Swin-S (first stage, shifted windows)", heads = 3 },
    { "Swin-B (first stage, shifted windows)", heads = 4 },
    { "SwinV2-T (first stage, shifted windows of 8)", heads = 3, window_h = 8, window_w = 8, cosine = true },
  },
  scale = cosine and 1 or nil,
  bias = not cosine and bias_of or nil,
  score = cosine and function(s, delta, head)
    return pe.exp(pe.min(warmth(head), 4.605170185988092)) * s + bias_of(delta, head)
  end or nil,
}
