"""What the papers say of each encoding in specs/, as `pegen explain` must have it.

CLAIMS[spec] is a list of (options, {property: (holds, known)}, source); a claim of None: the paper says nothing.
The measured ones are statements about the description with random operands, not about trained ones.
"""

YES, NO, AVERAGE, NONE = "yes", "no", "on average", "not applicable"
PROVED, MEASURED = "proved", "measured"

# What all rotations have in common.
ROTATION = {
    "norm_kept": (YES, PROVED),
    "invertible": (YES, PROVED),
    "context_aware": (NO, PROVED),
    "identity_at_origin": (YES, PROVED),
    "distance_decay": (AVERAGE, MEASURED),  # RoFormer, section 3.4.3; GeoPE, appendix E
}
# Generators that commute: relative positions, exactly (RoFormer, section 3.3; ComRoPE, lemma 1 and theorem 1).
TORUS = ROTATION | {
    "commuting_generators": (YES, PROVED),
    "translation_invariant": (YES, PROVED),
}
# Generators that do not: "breaking strict equivariance" (CARE, section 1); LieRE, eq. 1 against eq. 2.
TWISTED = ROTATION | {
    "commuting_generators": (NO, MEASURED),
    "translation_invariant": (NO, MEASURED),
    "rotation_invariant": (NO, MEASURED),
}
ONE_AXIS = {"rotation_invariant": (NONE, PROVED)}
UNTOLD = {"distance_decay": None}  # no paper says anything of it
DIRECTED = {"rotation_invariant": (NO, MEASURED)}
# Functions of the displacement inside attention: "translation invariance" of biases (PaPE, section 2).
PAIRS = {
    "norm_kept": (YES, PROVED),
    "translation_invariant": (YES, PROVED),
    "commuting_generators": (NONE, PROVED),
    "invertible": (NONE, PROVED),
    "distance_decay": (YES, MEASURED),
    "context_aware": (NO, PROVED),
    "identity_at_origin": (YES, MEASURED),
}
LINEAR = {"commuting_generators": (NO, MEASURED), "distance_decay": (AVERAGE, MEASURED)}
# A polynomial of the displacement, brought about by columns.
COLUMNS = PAIRS | {
    "norm_kept": (NO, PROVED),
    "invertible": (YES, PROVED),
    "distance_decay": (AVERAGE, MEASURED),  # the square terms penalise distance, the linear ones lean
    "context_aware": (YES, PROVED),
}
ABSOLUTE = {
    "norm_kept": (NO, PROVED),
    "translation_invariant": (NO, MEASURED),
    "commuting_generators": (NONE, PROVED),
    "invertible": (YES, PROVED),
    "distance_decay": None,
    "context_aware": (NO, PROVED),
    "identity_at_origin": (NO, MEASURED),
}

CLAIMS = {
    "rope": [
        (
            [],
            TORUS | ONE_AXIS,
            "RoFormer, sections 3.3 and 3.4.3; PaPE, section 2: translation invariance, distance decay",
        ),
        (["rotary_dim=4"], TORUS | ONE_AXIS | {"distance_decay": (NO, MEASURED)}, "two frequencies meet again"),
        (["layout=split", "rotary_dim=32"], TORUS | ONE_AXIS, "the same of a part of the head"),
        (
            ["scaling=yarn", "factor=4"],
            TORUS | ONE_AXIS | {"norm_kept": (NO, PROVED), "identity_at_origin": (NO, MEASURED)},
            "YaRN, section 3.4: the attention factor scales queries and keys",
        ),
        (["inverse=true"], TORUS | ONE_AXIS, "the inverse of a rotation is one"),
    ],
    "rope_axial": [
        ([], TORUS | DIRECTED, "PaPE, section 4.2: axial RoPE combines translation invariance with distance decay"),
        (["axes=3", "head_dim=96"], TORUS | DIRECTED, "the same"),
        (["arrangement=alternating"], TORUS | DIRECTED, "the same"),
        (["rotary_dim=32"], TORUS | DIRECTED, "the same of a part of the head"),
        (
            ["arrangement=sections", "axes=3", "sections=8,12,12"],
            TORUS | DIRECTED | UNTOLD,
            "base 1000000: far beyond 1024 units",
        ),
    ],
    "rope_mixed": [
        ([], TORUS | DIRECTED, "LieRE, section 3.1, eq. 2: RoPE-Mixed's rotations commute"),
        (["heads=4", "axes=3"], TORUS | DIRECTED, "the same"),
    ],
    "geope1d": [
        ([], TORUS | ONE_AXIS, "GeoPE, appendix F: equivalent to RoPE where there is one axis"),
        (["exponent_sign=-1"], TORUS | ONE_AXIS, "the same"),
    ],
    "geope2d": [
        ([], TWISTED, "GeoPE, section 3.4: r(theta, phi) is no product of shifts; appendix E: decay"),
        (["exponent_sign=-1", "layout=split"], TWISTED, "the same"),
    ],
    "geope3d": [
        ([], TWISTED, "GeoPE, section 3.4; appendix E"),
        (["exponent_sign=-1"], TWISTED, "the same"),
    ],
    "spherical": [([], TWISTED | UNTOLD, "CARE, sections 1 and 2: rotations on the sphere do not commute")],
    "quatro": [
        ([], TWISTED | UNTOLD, "CARE, section 4"),
        (["heads=2", "half_angle=true"], TWISTED | UNTOLD, "the same"),
    ],
    "care": [
        ([], TWISTED | UNTOLD, "CARE, section 5"),
        (["grades=0,2", "heads=2"], TWISTED | UNTOLD, "the same of a part of the grades"),
    ],
    "liere": [
        (
            [],
            TWISTED | UNTOLD,
            "LieRE, section 3.1: eq. 1 is an approximation where generators do not commute; "
            "ComRoPE, table 7: commonly not",
        ),
        (["block=3", "heads=2"], TWISTED | UNTOLD, "the same, of blocks that have a closed form"),
        (["block=4"], TWISTED | UNTOLD, "the same"),
        (["block=2"], TORUS | DIRECTED | UNTOLD, "LieRE, section 3.1: blocks of two are RoPE-Mixed, and commute"),
        (
            ["axes=1"],
            TORUS | ONE_AXIS | UNTOLD,
            "LieRE, appendix A: with one axis it reduces to RoPE with learnable phases",
        ),
    ],
    "comrope_ap": [
        ([], TORUS | DIRECTED | UNTOLD, "ComRoPE, table 7: commutes; theorem 1"),
        (["block=2"], TORUS | DIRECTED | UNTOLD, "the same, of planes"),
        (["block=4"], TORUS | DIRECTED | UNTOLD, "the same"),
        (
            ["basis=schur"],
            TORUS | DIRECTED | UNTOLD | {"identity_at_origin": (NO, PROVED)},
            "in the basis of the Schur form",
        ),
        (["basis=folded"], TORUS | DIRECTED | UNTOLD, "planes alone"),
    ],
    "comrope_ld": [([], TORUS | DIRECTED | UNTOLD, "ComRoPE, table 7: commutes; theorem 1")],
    # The change of basis is of the whole head and of every token, and turns the origin, too.
    "string_cayley": [
        ([], TORUS | DIRECTED | UNTOLD | {"identity_at_origin": (NO, PROVED)}, "STRING, as ComRoPE's theorem 1 has it")
    ],
    "attention": [([], PAIRS | ONE_AXIS | {"distance_decay": (NO, PROVED)}, "without positions nothing changes")],
    "alibi": [
        ([], PAIRS | ONE_AXIS, "Press et al., section 3"),
        (
            ["axes=2"],
            PAIRS | {"rotation_invariant": (YES, MEASURED)},
            "PaPE, section 4.2: translation invariance, rotation invariance and distance decay",
        ),
        (["axes=3"], PAIRS | {"rotation_invariant": (YES, MEASURED)}, "the same"),
    ],
    "lookhere": [
        ([], PAIRS | DIRECTED, "PaPE, section 4.2: directionality, and so no rotation invariance"),
        (["directions=eighths1-eighths2-none"], PAIRS | DIRECTED, "the same"),
    ],
    "relative_bias_table": [
        (
            [],
            PAIRS | DIRECTED | {"distance_decay": (NO, MEASURED), "identity_at_origin": (NO, MEASURED)},
            "Swin, eq. 4: whatever is learned",
        ),
    ],
    "lingeope": [
        ([], PAIRS | DIRECTED | LINEAR, "GeoPE, section 3.4: depends solely on the relative displacement"),
        (["axes=3"], PAIRS | DIRECTED | LINEAR, "the same"),
    ],
    "pape": [
        (
            [],
            COLUMNS | DIRECTED | {"distance_decay": (YES, MEASURED)},
            "PaPE, section 4: translation invariance, distance decay, context awareness; "
            "without constraints not rotation invariant",
        ),
        (["axes=3"], COLUMNS | DIRECTED | {"distance_decay": (YES, MEASURED)}, "the same"),
        (["role=pairwise"], PAIRS | DIRECTED | {"context_aware": (YES, PROVED)}, "the same, without columns"),
    ],
    "pape_ri": [
        (
            [],
            COLUMNS | {"rotation_invariant": (YES, MEASURED), "distance_decay": (YES, MEASURED)},
            "PaPE, section 4 and appendix A.1",
        )
    ],
    "polynomial": [
        (
            [],
            COLUMNS | DIRECTED | UNTOLD | {"context_aware": None, "identity_at_origin": None},
            "PaPE, appendix C: translation invariant",
        )
    ],
    "sincos": [
        (
            [],
            ABSOLUTE | DIRECTED,
            "PaPE, section 5.2: the only encoding of the study that lacks translation invariance",
        ),
        (["axes=1"], ABSOLUTE | ONE_AXIS, "the same"),
    ],
}
