-- error: out of memory
local s = "x"
for i = 1, 60 do
  s = s .. s -- HERE
end
