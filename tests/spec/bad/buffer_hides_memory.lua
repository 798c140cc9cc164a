-- error: out of memory: a spec may use
-- A buffer of the string library that does not fit is a plain error to Lua.
local pieces = {}
for i = 1, 4000 do pieces[i] = ("x"):rep(60000) end
for _ = 1, 1000 do pcall(table.concat, pieces) end
