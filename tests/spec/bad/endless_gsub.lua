-- error: too many repetitions
local s = ("a"):rep(5000):gsub(".-.-.-.-b", "") -- HERE
