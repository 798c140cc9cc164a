-- error: is too long
local t = {}
for i = 60, 0, -1 do t[1 << i] = 1 end
table.insert(t, 1, 1) -- HERE
