-- The two kernels that a polynomial bias can become: columns that widen q and k, or attention with the bias in it.
-- A spec asks for them as options, role and (of attention) value_dim, and hands both to pe.encoding.
local pe = require "pegen"

local role = pe.option("role", "separable",
  "separable: columns that widen q and k, for any attention; pairwise: attention itself",
  { "separable", "pairwise" })
local value_dim = role == "pairwise" and pe.option("value_dim", 0, "channels of a value; 0: head_dim") or 0

return { role = role, value_dim = value_dim > 0 and value_dim or nil }
