-- Quotes and characters beyond ASCII must come out as JSON.
local pe = require "pegen"
local note = pe.option("note", 'a "quoted" note', "text that JSON must escape")
local speed = pe.learned {
  name = "speed",
  shape = { "blocks" },
  doc = 'a "doc" of \u{e9}',
  units = "\u{fd} / \u{2603}",
}
return pe.encoding {
  name = "awkward_text",
  doc = "caf\u{e9} \u{1d11e} \u{2014} \"quoted\" " .. note,
  axes = { "x" },
  head_dim = 7,
  block = pe.plane(),
  generators = pe.turn "e12",
  phase = function(_, i) return speed(i) end,
}
