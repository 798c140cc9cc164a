-- error: No such file
local s = require "nowhere" -- HERE
