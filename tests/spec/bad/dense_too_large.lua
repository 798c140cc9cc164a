-- error: pe.dense(65): a number of channels from 2 to 64 was expected
local pe = require "pegen"
local block = pe.dense(65) -- HERE
return block
