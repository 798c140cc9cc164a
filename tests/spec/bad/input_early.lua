-- error: input 'a' has elements only inside the functions that pe.encoding calls
local pe = require "pegen"
local a = pe.input { name = "a", shape = { 3 }, doc = "one" }
local x = a(0) -- HERE
