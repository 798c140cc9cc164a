-- error: pe.encoding takes a table without a metatable
local pe = require "pegen"
local count = 0
return pe.encoding(setmetatable({ name = "bad" }, { -- HERE
  __index = function(_, field)
    count = count + 1
    return field == "axes" and (count > 3 and "x" or { "x" }) or nil
  end,
}))
