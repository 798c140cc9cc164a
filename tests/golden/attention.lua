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
  { name = "pape2d", encoding = "pape", scale = 0.125,
    options = { role = "pairwise", head_dim = 64, heads = 2, axes = 2, parabolas = 50 },
    inputs = {
      q = { file = "pape2d.q.f64", shape = { 1, 2, 12, 64 } },
      k = { file = "pape2d.k.f64", shape = { 1, 2, 12, 64 } },
      v = { file = "pape2d.v.f64", shape = { 1, 2, 12, 64 } },
      positions = { file = "pape2d.positions.f64", shape = { 12, 2 } },
      projection = { file = "pape2d.projection.f64", shape = { 2, 50, 2 } },
      a = { file = "pape2d.a.f64", shape = { 1, 2, 12, 50 } },
      b = { file = "pape2d.b.f64", shape = { 1, 2, 12, 50 } },
    },
    expect = {
      scores = { file = "pape2d.scores.f64", shape = { 1, 2, 12, 12 } },
      attention = { file = "pape2d.attention.f64", shape = { 1, 2, 12, 64 } },
    } },
  { name = "pape3d", encoding = "pape", scale = 0.125,
    options = { role = "pairwise", head_dim = 64, heads = 2, axes = 3, parabolas = 8 },
    inputs = {
      q = { file = "pape3d.q.f64", shape = { 1, 2, 12, 64 } },
      k = { file = "pape3d.k.f64", shape = { 1, 2, 12, 64 } },
      v = { file = "pape3d.v.f64", shape = { 1, 2, 12, 64 } },
      positions = { file = "pape3d.positions.f64", shape = { 12, 3 } },
      projection = { file = "pape3d.projection.f64", shape = { 2, 8, 3 } },
      a = { file = "pape3d.a.f64", shape = { 1, 2, 12, 8 } },
      b = { file = "pape3d.b.f64", shape = { 1, 2, 12, 8 } },
    },
    expect = {
      scores = { file = "pape3d.scores.f64", shape = { 1, 2, 12, 12 } },
      attention = { file = "pape3d.attention.f64", shape = { 1, 2, 12, 64 } },
    } },
  { name = "pape_ri", encoding = "pape_ri", scale = 0.125,
    options = { role = "pairwise", head_dim = 64, heads = 2, axes = 3 },
    inputs = {
      q = { file = "pape_ri.q.f64", shape = { 1, 2, 12, 64 } },
      k = { file = "pape_ri.k.f64", shape = { 1, 2, 12, 64 } },
      v = { file = "pape_ri.v.f64", shape = { 1, 2, 12, 64 } },
      positions = { file = "pape_ri.positions.f64", shape = { 12, 3 } },
      projection = { file = "pape_ri.projection.f64", shape = { 2 } },
      a = { file = "pape_ri.a.f64", shape = { 1, 2, 12 } },
    },
    expect = {
      scores = { file = "pape_ri.scores.f64", shape = { 1, 2, 12, 12 } },
      attention = { file = "pape_ri.attention.f64", shape = { 1, 2, 12, 64 } },
    } },
}
