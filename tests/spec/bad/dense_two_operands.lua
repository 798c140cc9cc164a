-- error: the generator of axis 'h' is of operand 'b' in block 1 and of 'a' in block 0; one operand was expected
local pe = require "pegen"
local A = pe.learned.skew(4, { name = "a", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "raw matrices" })
local B = pe.learned.skew(4, { name = "b", shape = { "blocks" }, from = "upper", doc = "raw matrices" })
local function generator(axis, i, head) -- HERE
  if i == 1 then return B(i) end
  return A(axis, head, i)
end
return pe.encoding {
  name = "x", axes = { "h", "w" }, head_dim = 16,
  block = pe.dense(4), combine = pe.sum, phase = 1, generators = generator,
}
