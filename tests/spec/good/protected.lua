local pe = require "pegen"
assert(not pcall(error, "x"))
local ok, message = xpcall(function() error "inner" end, function(m) return "handled " .. m end)
assert(not ok and message:find("handled", 1, true) and message:find("inner", 1, true))
assert(select("#", xpcall(function(...) return ... end, error, 1, 2, 3)) == 4)
assert(getmetatable("") == "string" and ("x"):rep(3) == "xxx" and ("x"):rep(1 << 40 >> 40, "") == "x")
assert(tostring({}) == "table" and ("%s"):format(function() end) == "function" and string.rep("", 1 << 60) == "")
assert(table.concat({ 1, 2 }, ",") == "1,2" and table.unpack({ 7 }) == 7)
assert(require "pegen" == pe)
return pe.encoding {
  name = "bad",
  axes = { "x", "y" },
  head_dim = 16,
  block = pe.plane(),
  generators = pe.turn "e12",
  combine = pe.sum,
  phase = function(_, i) return 1 / (i + 1) end,
}
