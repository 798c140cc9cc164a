-- error: field 'axes' of pe.encoding has a metatable, a plain list of names was expected
-- Nine axes where # sees one.
local pe = require "pegen"
local axes = setmetatable({ "a" }, { __index = function(_, i) return i <= 9 and ("abcdefghi"):sub(i, i) or nil end })
return pe.encoding {
  name = "bad",
  axes = axes, -- HERE
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
