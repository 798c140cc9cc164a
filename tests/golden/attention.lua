-- Golden cases of attention: float64 little-endian arrays, row-major, with the shapes given. `scale` is an argument of
-- the call; scores are before the softmax.
return {
  { name = "lingeope", encoding = "lingeope", scale = 0.125,
    options = { head_dim = 64, base = 100.0, exponent_sign = -1 },
    inputs = {
      q = { file = "lingeope.q.f64", shape = { 1, 2, 12, 64 } },
      k = { file = "lingeope.k.f64", shape = { 1, 2, 12, 64 } },
      v = { file = "lingeope.v.f64", shape = { 1, 2, 12, 64 } },
      positions = { file = "lingeope.positions.f64", shape = { 12, 2 } },
    },
    expect = {
      scores = { file = "lingeope.scores.f64", shape = { 1, 2, 12, 12 } },
      attention = { file = "lingeope.attention.f64", shape = { 1, 2, 12, 64 } },
    } },
  { name = "alibi2d", encoding = "alibi", scale = 0.1767766952966369,
    options = { head_dim = 32, heads = 12, axes = 2 },
    inputs = {
      q = { file = "alibi2d.q.f64", shape = { 1, 12, 12, 32 } },
      k = { file = "alibi2d.k.f64", shape = { 1, 12, 12, 32 } },
      v = { file = "alibi2d.v.f64", shape = { 1, 12, 12, 32 } },
      positions = { file = "alibi2d.positions.f64", shape = { 12, 2 } },
    },
    expect = {
      scores = { file = "alibi2d.scores.f64", shape = { 1, 12, 12, 12 } },
      attention = { file = "alibi2d.attention.f64", shape = { 1, 12, 12, 32 } },
    } },
}
