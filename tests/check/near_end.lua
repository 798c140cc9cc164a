-- A slerp close to its end: what the rotor at its beginning gains is a thousandth of the torque, left of two parts that
-- cancel, which float32 would have the digits of, and no more. With -D at=1, or 0, rounding alone is left of them.
local pe = require "pegen"
local at = pe.option("at", 0.999, "how far slerp goes")
local b = pe.learned { name = "b", shape = { "axes", "blocks", 3 }, doc = "generators", units = "1", source = "a test" }

return pe.encoding {
  name = "near_end",
  axes = { "d", "w" },
  head_dim = 6,
  block = pe.vector(3),
  generators = function(a, i)
    return pe.quaternion "i" * b(a, i, 0) + pe.quaternion "j" * b(a, i, 1) + pe.quaternion "k" * b(a, i, 2)
  end,
  combine = pe.slerp { from = "d", to = "w", at = at },
  phase = 1,
}
