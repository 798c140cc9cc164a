-- error: out of memory: a spec may use 64 MiB
local t = {}
while true do
  pcall(function() for i = 1, 1e9 do t[#t + 1] = { i } end end)
  t = {}
end
