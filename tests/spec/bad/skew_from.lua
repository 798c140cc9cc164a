-- error: field 'from' of pe.learned.skew is 'lower', "upper" (triu(F, 1) - transpose) or "difference" (F - transpose) was expected
local pe = require "pegen"
local A = pe.learned.skew(4, {
  name = "a", shape = { "blocks" }, doc = "raw matrices",
  from = "lower", -- HERE
})
return A
