-- Two matrices act on each block, which have no basis in common.
local pe = require "pegen"
return pe.encoding {
  name = "schur", axes = { "h", "w" }, head_dim = 16, block = pe.dense(4), combine = pe.sum, phase = 1, basis = pe.schur,
  generators = pe.learned.skew(4, { name = "f", shape = { "axes", "blocks" }, from = "difference", doc = "raw matrices" }),
}
