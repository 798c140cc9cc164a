-- Quotes and bytes that are no UTF-8 must come out as JSON.
local pe = require "pegen"
local note = pe.option("note", 'a "quoted" note', "text that JSON must escape")
local speed = pe.learned { name = "speed", shape = { "blocks" }, doc = 'a "doc" of \xe2\x82', units = "\xf5 / \u{2603}" }
return pe.encoding {
  name = "awkward_text",
  doc = "caf\u{e9} \u{1d11e} \xff\xc0\xaf \"quoted\" " .. note,
  axes = { "x" },
  head_dim = 7,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return speed(i) end,
}
