-- error: out of memory
local s = string.rep("x", 1 << 40) -- HERE
