-- error: a plane such as "e12"
local pe = require "pegen"
local q = pe.turn "e11" -- HERE
