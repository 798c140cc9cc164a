-- error: the vocabulary has no word pe.learned.skw; there is: pe.learned{...}, pe.learned.skew(b, {...})
local pe = require "pegen"
local A = pe.learned.skw(4, {}) -- HERE
return A
