-- error: too many repetitions
local s = string.find(string.rep("a", 5000), string.rep("a-", 20) .. "b") -- HERE
