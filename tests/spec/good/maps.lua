-- Maps of channels: of a whole, and of two parts.
local pe = require "pegen"
local function about(_, r) return r end
local function bent(x) return pe.where(x, 1, pe.tanh(x) ^ 3, pe.log1p(pe.abs(x)) - pe.floor(x / 2)) end
return pe.encoding {
  name = "maps",
  axes = { "t", "h" },
  head_dim = 24,
  parts = {
    { span = { 0, 8 }, axes = { "t" }, block = pe.plane(), generators = pe.turn "e12", pre = bent,
      phase = function(_, i) return 2 ^ -i end },
    { span = { 8, 4 }, axes = { "h" }, block = pe.plane(), generators = pe.turn "e12", phase = 1, position = about },
    { span = { 12, 12 }, block = pe.vector(3), generators = { t = pe.quaternion "i", h = pe.quaternion "k" },
      combine = pe.mean, phase = 0.5, pre = pe.softplus },
  },
}
