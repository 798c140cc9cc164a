-- error: syntax error near '+'
local pe = require "pegen"
x + 1 -- HERE
