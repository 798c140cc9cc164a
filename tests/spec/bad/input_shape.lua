-- error: field 'shape' of pe.input is a table, {} or { size }
local pe = require "pegen"
local a = pe.input {
  name = "a",
  shape = { 3, 4 }, -- HERE
  doc = "one",
}
