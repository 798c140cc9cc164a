-- pegen: the words of the description language; docs/spec-language.md is their reference.
--
-- `require "pegen"` gives this table. Each word is checked in the file that it comes from.
local core = ...
local algebra = core.include "algebra"
local coordinates = core.include "coordinates"
local dense = core.include "dense"
local encoding = core.include "encoding"
local initial = core.include "initial"
local inputs = core.include "inputs"
local linear = core.include "linear"
local operands = core.include "operands"
local options = core.include "options"
local pairwise = core.include "pairwise"
local polynomial = core.include "polynomial"
local rotors = core.include "rotors"

local pe = {
  pi = math.pi,
  sum = encoding.sum,
  mean = encoding.mean,
  product = encoding.product,
  symmetric = encoding.symmetric,
  schur = dense.schur,
  chordal = rotors.chordal,
  karcher = rotors.karcher,
  slerp = rotors.slerp,
  masked = pairwise.masked,
}

local words = {
  option = options.option,
  input = inputs.input,
  init = initial.init,
  polynomial = polynomial.polynomial,
  plane = algebra.plane,
  vector = algebra.vector,
  multivector = algebra.multivector,
  dense = dense.dense,
  linear = linear.linear,
  cayley = dense.cayley,
  coordinates = coordinates.coordinates,
  turn = algebra.turn,
  quaternion = algebra.quaternion,
  bivector = algebra.bivector,
  norm = pairwise.norm,
  encoding = encoding.encoding,
}

for name, word in pairs(words) do pe[name] = core.word(word) end
for name, word in pairs(core.arithmetic) do pe[name] = word end
pe.exp, pe.log = core.word(rotors.exp), core.word(rotors.log) -- of rotors, too

local check = core.include "check"

-- pe.learned{...} declares an operand of numbers, pe.learned.skew(b, {...}) one of matrices.
pe.learned = setmetatable({ skew = core.word(operands.learned_skew) }, {
  __metatable = "learned",
  __call = core.word(function(_, ...) return operands.learned(...) end),
  __index = core.word(function(_, name)
    check.fail("the vocabulary has no word pe.learned.%s; there is: pe.learned{...}, pe.learned.skew(b, {...})",
      tostring(name))
  end),
})

-- A misspelt word is an error where it stands, not a nil that is called later.
local names = {}
for name in pairs(pe) do names[#names + 1] = name end
return setmetatable(pe, {
  __metatable = "pegen",
  __index = core.word(function(_, name)
    check.fail("the vocabulary has no word pe.%s%s", tostring(name), check.hint(name, names))
  end),
})
