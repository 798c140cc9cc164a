-- define: inverse=true
-- error: pe.schur has no inverse: its basis is known to the kernel alone
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "blocks" }, from = "upper", doc = "raw matrices" })
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(4), combine = pe.sum, phase = 1, generators = A,
  basis = pe.schur, -- HERE
}
