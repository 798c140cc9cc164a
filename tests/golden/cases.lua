-- Golden cases: float64 little-endian arrays, row-major, with the shapes given.
-- x, q, k, v are [batch, head, token, channel]; positions [token, axis] or [batch, token, axis].
return {
  { name = "rope_interleaved", encoding = "rope",
    options = { head_dim = 64, base = 10000.0, layout = "interleaved" },
    inputs = {
      x = { file = "rope_interleaved.x.f64", shape = { 2, 3, 6, 64 } },
      positions = { file = "rope_interleaved.positions.f64", shape = { 6, 1 } },
    },
    expect = {
      out = { file = "rope_interleaved.out.f64", shape = { 2, 3, 6, 64 } },
    } },
  { name = "rope_split", encoding = "rope",
    options = { head_dim = 64, base = 10000.0, layout = "split" },
    inputs = {
      x = { file = "rope_split.x.f64", shape = { 2, 3, 6, 64 } },
      positions = { file = "rope_split.positions.f64", shape = { 6, 1 } },
    },
    expect = {
      out = { file = "rope_split.out.f64", shape = { 2, 3, 6, 64 } },
    } },
  { name = "rope_partial", encoding = "rope",
    options = { head_dim = 64, base = 500000.0, layout = "split", rotary_dim = 48 },
    inputs = {
      x = { file = "rope_partial.x.f64", shape = { 2, 3, 6, 64 } },
      positions = { file = "rope_partial.positions.f64", shape = { 6, 1 } },
    },
    expect = {
      out = { file = "rope_partial.out.f64", shape = { 2, 3, 6, 64 } },
    } },
  { name = "rope_axial2d", encoding = "rope_axial",
    options = { head_dim = 64, axes = 2, base = 100.0, layout = "interleaved" },
    inputs = {
      x = { file = "rope_axial2d.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "rope_axial2d.positions.f64", shape = { 12, 2 } },
    },
    expect = {
      out = { file = "rope_axial2d.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "rope_axial3d", encoding = "rope_axial",
    options = { head_dim = 48, axes = 3, base = 100.0, layout = "interleaved" },
    inputs = {
      x = { file = "rope_axial3d.x.f64", shape = { 1, 2, 12, 48 } },
      positions = { file = "rope_axial3d.positions.f64", shape = { 12, 3 } },
    },
    expect = {
      out = { file = "rope_axial3d.out.f64", shape = { 1, 2, 12, 48 } },
    } },
  { name = "rope_mixed", encoding = "rope_mixed",
    options = { head_dim = 64, heads = 3, layout = "interleaved" },
    inputs = {
      x = { file = "rope_mixed.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "rope_mixed.positions.f64", shape = { 12, 2 } },
      freqs = { file = "rope_mixed.freqs.f64", shape = { 2, 3, 32 } },
    },
    expect = {
      out = { file = "rope_mixed.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "geope2d_paper", encoding = "geope2d",
    options = { head_dim = 64, base = 100.0, exponent_sign = 1 },
    inputs = {
      x = { file = "geope2d_paper.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "geope2d_paper.positions.f64", shape = { 12, 2 } },
    },
    expect = {
      out = { file = "geope2d_paper.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "geope2d_decaying", encoding = "geope2d",
    options = { head_dim = 64, base = 100.0, exponent_sign = -1 },
    inputs = {
      x = { file = "geope2d_decaying.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "geope2d_decaying.positions.f64", shape = { 12, 2 } },
    },
    expect = {
      out = { file = "geope2d_decaying.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "geope2d_real_positions", encoding = "geope2d",
    options = { head_dim = 48, base = 100.0, exponent_sign = -1 },
    inputs = {
      x = { file = "geope2d_real_positions.x.f64", shape = { 2, 2, 9, 48 } },
      positions = { file = "geope2d_real_positions.positions.f64", shape = { 2, 9, 2 } },
    },
    expect = {
      out = { file = "geope2d_real_positions.out.f64", shape = { 2, 2, 9, 48 } },
    } },
  { name = "geope2d_split", encoding = "geope2d",
    options = { head_dim = 48, base = 100.0, exponent_sign = -1, layout = "split" },
    inputs = {
      x = { file = "geope2d_split.x.f64", shape = { 2, 2, 9, 48 } },
      positions = { file = "geope2d_split.positions.f64", shape = { 2, 9, 2 } },
    },
    expect = {
      out = { file = "geope2d_split.out.f64", shape = { 2, 2, 9, 48 } },
    } },
  { name = "geope3d_paper", encoding = "geope3d",
    options = { head_dim = 64, base = 100.0, exponent_sign = 1 },
    inputs = {
      x = { file = "geope3d_paper.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "geope3d_paper.positions.f64", shape = { 12, 3 } },
    },
    expect = {
      out = { file = "geope3d_paper.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "geope3d_decaying", encoding = "geope3d",
    options = { head_dim = 96, base = 100.0, exponent_sign = -1 },
    inputs = {
      x = { file = "geope3d_decaying.x.f64", shape = { 1, 2, 12, 96 } },
      positions = { file = "geope3d_decaying.positions.f64", shape = { 12, 3 } },
    },
    expect = {
      out = { file = "geope3d_decaying.out.f64", shape = { 1, 2, 12, 96 } },
    } },
  { name = "geope3d_chordal", encoding = "geope3d", -- SciPy: U V^T of the mean matrix, by its SVD
    options = { head_dim = 48, base = 100.0, exponent_sign = -1, mean = "chordal" },
    inputs = {
      x = { file = "geope3d_chordal.x.f64", shape = { 2, 3, 10, 48 } },
      positions = { file = "geope3d_chordal.positions.f64", shape = { 10, 3 } },
    },
    expect = {
      out = { file = "geope3d_chordal.out.f64", shape = { 2, 3, 10, 48 } },
    } },
  { name = "geope3d_karcher", encoding = "geope3d", -- SciPy: from there means of rotation vectors, three times
    options = { head_dim = 48, base = 100.0, exponent_sign = -1, mean = "karcher", steps = 3 },
    inputs = {
      x = { file = "geope3d_karcher.x.f64", shape = { 2, 3, 10, 48 } },
      positions = { file = "geope3d_karcher.positions.f64", shape = { 10, 3 } },
    },
    expect = {
      out = { file = "geope3d_karcher.out.f64", shape = { 2, 3, 10, 48 } },
    } },
  { name = "geope1d", encoding = "geope1d",
    options = { head_dim = 32, base = 100.0, exponent_sign = -1 },
    inputs = {
      x = { file = "geope1d.x.f64", shape = { 1, 2, 6, 32 } },
      positions = { file = "geope1d.positions.f64", shape = { 6, 1 } },
    },
    expect = {
      out = { file = "geope1d.out.f64", shape = { 1, 2, 6, 32 } },
    } },
  { name = "spherical", encoding = "spherical",
    options = { head_dim = 63, base = 100.0, exponent_sign = -1 },
    inputs = {
      x = { file = "spherical.x.f64", shape = { 2, 3, 12, 63 } },
      positions = { file = "spherical.positions.f64", shape = { 12, 2 } },
    },
    expect = {
      out = { file = "spherical.out.f64", shape = { 2, 3, 12, 63 } },
    } },
  { name = "quatro", encoding = "quatro",
    options = { head_dim = 64, heads = 3 },
    inputs = {
      x = { file = "quatro.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "quatro.positions.f64", shape = { 12, 2 } },
      theta = { file = "quatro.theta.f64", shape = { 2, 3, 21, 3 } },
    },
    expect = {
      out = { file = "quatro.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "care", encoding = "care",
    options = { head_dim = 64, heads = 3, grades = { 0, 1, 2, 3 } },
    inputs = {
      x = { file = "care.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "care.positions.f64", shape = { 12, 2 } },
      axis = { file = "care.axis.f64", shape = { 2, 3, 8, 3 } },
      freq = { file = "care.freq.f64", shape = { 2, 3, 8 } },
    },
    expect = {
      out = { file = "care.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "care_vector", encoding = "care",
    options = { head_dim = 64, heads = 3, grades = { 1 } },
    inputs = {
      x = { file = "care_vector.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "care_vector.positions.f64", shape = { 12, 2 } },
      axis = { file = "care_vector.axis.f64", shape = { 2, 3, 21, 3 } },
      freq = { file = "care_vector.freq.f64", shape = { 2, 3, 21 } },
    },
    expect = {
      out = { file = "care_vector.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "care_even", encoding = "care",
    options = { head_dim = 64, heads = 3, grades = { 0, 2 } },
    inputs = {
      x = { file = "care_even.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "care_even.positions.f64", shape = { 12, 2 } },
      axis = { file = "care_even.axis.f64", shape = { 2, 3, 16, 3 } },
      freq = { file = "care_even.freq.f64", shape = { 2, 3, 16 } },
    },
    expect = {
      out = { file = "care_even.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "liere2", encoding = "liere",
    note = "A = triu(raw,1) - triu(raw,1)^T",
    options = { head_dim = 64, heads = 3, block = 2 },
    inputs = {
      x = { file = "liere2.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "liere2.positions.f64", shape = { 12, 2 } },
      generators = { file = "liere2.generators.f64", shape = { 2, 3, 32, 2, 2 } },
    },
    expect = {
      out = { file = "liere2.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "liere4", encoding = "liere",
    note = "A = triu(raw,1) - triu(raw,1)^T",
    options = { head_dim = 64, heads = 3, block = 4 },
    inputs = {
      x = { file = "liere4.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "liere4.positions.f64", shape = { 12, 2 } },
      generators = { file = "liere4.generators.f64", shape = { 2, 3, 16, 4, 4 } },
    },
    expect = {
      out = { file = "liere4.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "liere8", encoding = "liere",
    note = "A = triu(raw,1) - triu(raw,1)^T",
    options = { head_dim = 64, heads = 3, block = 8 },
    inputs = {
      x = { file = "liere8.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "liere8.positions.f64", shape = { 12, 2 } },
      generators = { file = "liere8.generators.f64", shape = { 2, 3, 8, 8, 8 } },
    },
    expect = {
      out = { file = "liere8.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "liere16", encoding = "liere",
    note = "A = triu(raw,1) - triu(raw,1)^T",
    options = { head_dim = 64, heads = 3, block = 16 },
    inputs = {
      x = { file = "liere16.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "liere16.positions.f64", shape = { 12, 2 } },
      generators = { file = "liere16.generators.f64", shape = { 2, 3, 4, 16, 16 } },
    },
    expect = {
      out = { file = "liere16.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "liere64", encoding = "liere",
    note = "A = triu(raw,1) - triu(raw,1)^T",
    options = { head_dim = 64, heads = 3, block = 64 },
    inputs = {
      x = { file = "liere64.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "liere64.positions.f64", shape = { 12, 2 } },
      generators = { file = "liere64.generators.f64", shape = { 2, 3, 1, 64, 64 } },
    },
    expect = {
      out = { file = "liere64.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "comrope_ap", encoding = "comrope_ap",
    note = "A = F - F^T",
    options = { head_dim = 64, heads = 3, block = 8 },
    inputs = {
      x = { file = "comrope_ap.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "comrope_ap.positions.f64", shape = { 12, 2 } },
      generators = { file = "comrope_ap.generators.f64", shape = { 3, 8, 8, 8 } },
    },
    expect = {
      out = { file = "comrope_ap.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "comrope_ld", encoding = "comrope_ld",
    options = { head_dim = 64, heads = 3, block = 8 },
    inputs = {
      x = { file = "comrope_ld.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "comrope_ld.positions.f64", shape = { 12, 2 } },
      generators = { file = "comrope_ld.generators.f64", shape = { 3, 8, 8, 8 } },
      multiplier = { file = "comrope_ld.multiplier.f64", shape = { 2, 8 } },
    },
    expect = {
      out = { file = "comrope_ld.out.f64", shape = { 2, 3, 12, 64 } },
    } },
  { name = "string_cayley", encoding = "string_cayley",
    options = { head_dim = 64, heads = 3 },
    inputs = {
      x = { file = "string_cayley.x.f64", shape = { 2, 3, 12, 64 } },
      positions = { file = "string_cayley.positions.f64", shape = { 12, 2 } },
      cayley = { file = "string_cayley.cayley.f64", shape = { 64, 64 } },
      freqs = { file = "string_cayley.freqs.f64", shape = { 2, 3, 32 } },
    },
    expect = {
      out = { file = "string_cayley.out.f64", shape = { 2, 3, 12, 64 } },
    } },
}
