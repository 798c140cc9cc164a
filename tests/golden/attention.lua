-- Golden cases of attention: float64 little-endian arrays, row-major, with the shapes given. `scale` is an argument of
-- the call; scores are before the softmax.
-- Each array KEY of a case NAME is the file NAME.KEY.f64; its row gives the shape.
return {
  { name = "lingeope", encoding = "lingeope", scale = 0.125,
    options = { head_dim = 64, base = 100.0, exponent_sign = -1 },
    inputs = { q = { 1, 2, 12, 64 }, k = { 1, 2, 12, 64 }, v = { 1, 2, 12, 64 }, positions = { 12, 2 } },
    expect = { scores = { 1, 2, 12, 12 }, attention = { 1, 2, 12, 64 } } },
  { name = "alibi2d", encoding = "alibi", scale = 0.1767766952966369,
    options = { head_dim = 32, heads = 12, axes = 2 },
    inputs = { q = { 1, 12, 12, 32 }, k = { 1, 12, 12, 32 }, v = { 1, 12, 12, 32 }, positions = { 12, 2 } },
    expect = { scores = { 1, 12, 12, 12 }, attention = { 1, 12, 12, 32 } } },
  { name = "pape2d", encoding = "pape", scale = 0.125,
    options = { role = "pairwise", head_dim = 64, heads = 2, axes = 2, parabolas = 50 },
    inputs = { q = { 1, 2, 12, 64 }, k = { 1, 2, 12, 64 }, v = { 1, 2, 12, 64 }, positions = { 12, 2 },
      projection = { 2, 50, 2 }, a = { 1, 2, 12, 50 }, b = { 1, 2, 12, 50 } },
    expect = { scores = { 1, 2, 12, 12 }, attention = { 1, 2, 12, 64 } } },
  { name = "pape3d", encoding = "pape", scale = 0.125,
    options = { role = "pairwise", head_dim = 64, heads = 2, axes = 3, parabolas = 8 },
    inputs = { q = { 1, 2, 12, 64 }, k = { 1, 2, 12, 64 }, v = { 1, 2, 12, 64 }, positions = { 12, 3 },
      projection = { 2, 8, 3 }, a = { 1, 2, 12, 8 }, b = { 1, 2, 12, 8 } },
    expect = { scores = { 1, 2, 12, 12 }, attention = { 1, 2, 12, 64 } } },
  { name = "pape_ri", encoding = "pape_ri", scale = 0.125,
    options = { role = "pairwise", head_dim = 64, heads = 2, axes = 3 },
    inputs = { q = { 1, 2, 12, 64 }, k = { 1, 2, 12, 64 }, v = { 1, 2, 12, 64 }, positions = { 12, 3 },
      projection = { 2 }, a = { 1, 2, 12 } },
    expect = { scores = { 1, 2, 12, 12 }, attention = { 1, 2, 12, 64 } } },
}
