-- error: input 'a' is declared twice
local pe = require "pegen"
local a = pe.input { name = "a", shape = { 3 }, doc = "one" }
local b = pe.input {
  name = "a", -- HERE
  shape = {}, doc = "two",
}
