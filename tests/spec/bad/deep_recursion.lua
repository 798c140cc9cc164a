-- error: is there an endless loop or recursion?
local function f() return 1 + f() end
f()
