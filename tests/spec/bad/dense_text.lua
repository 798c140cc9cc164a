-- error: pe.dense('4'): a number of channels
local pe = require "pegen"
local block = pe.dense "4" -- HERE
return block
