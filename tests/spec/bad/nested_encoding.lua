-- error: describes one encoding, this is the second
local pe = require "pegen"
local function inner()
  local other = pe.encoding { -- HERE
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
end
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function() inner(); return 1 end,
}
