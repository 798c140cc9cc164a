-- Dense blocks for the fuzzer: a kernel with tables.
local pe = require "pegen"
return pe.encoding {
  name = "fuzz_dense",
  doc = "Two heads of blocks of 5 channels that turn by exponentials of learned skew matrices.",
  axes = { "x", "y" },
  head_dim = 17,
  heads = 2,
  block = pe.dense(5),
  generators = pe.learned.skew(5, {
    name = "generators", shape = { "axes", "heads", "blocks" }, from = "upper", doc = "their upper triangles",
      units = "radians",
  }),
  combine = pe.sum,
  phase = 1,
}
