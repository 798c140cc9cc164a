-- Options under which a spec's properties are checked beside its defaults, by the spec's file name.
-- A spec that is not listed is checked with its defaults alone.
return {
  rope = { { layout = "split" }, { layout = "interleaved", rotary_dim = 32, head_dim = 48 } },
  rope_axial = { { axes = 2 }, { axes = 3, head_dim = 48 }, { rotary_dim = 24, head_dim = 48, layout = "split" } },
  rope_mixed = { { heads = 3, layout = "split" } },
  geope2d = { { exponent_sign = -1, head_dim = 48, layout = "split" } },
  geope3d = { { exponent_sign = -1, head_dim = 96 }, { exponent_sign = -1, head_dim = 12, mean = "chordal" },
              { exponent_sign = -1, head_dim = 6, mean = "karcher", steps = 2 } },
  spherical = { { head_dim = 70 } },
  quatro = { { heads = 2 } },
  care = { { grades = "1", heads = 2 }, { grades = "0,2", heads = 2 }, { grades = "0,1,2,3", heads = 2 } },
  liere = { { block = 8, heads = 2 }, { block = 4 }, { block = 3 }, { block = 20, head_dim = 65, axes = 3 } },
  comrope_ap = { { basis = "schur", heads = 2 }, { block = 16, heads = 2, axes = 3 }, { basis = "folded", heads = 2 },
                 { basis = "folded", block = 5, head_dim = 33 } },
  comrope_ld = { { heads = 2 }, { basis = "folded", heads = 2 } },
}
