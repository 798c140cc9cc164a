-- error: out of memory: a spec may use 64 MiB
local t = {}
for i = 1, 1e9 do t[i] = { i } end
