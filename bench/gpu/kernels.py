"""Which kernels are compiled ahead, and what is measured with them. Nothing here needs PyTorch."""
from typing import Any, NamedTuple

TARGETS = "x86-64-v3,sm_90"
GRID = 64  # tokens of an image's side where 4096 tokens have two axes


class Kernel(NamedTuple):
    """A description to compile: a file under specs/, or under bench/gpu/specs/."""

    spec: str
    options: dict[str, Any]
    dtypes: str = "bf16"


KERNELS: dict[str, Kernel] = {}


def _kernel(spec: str, dtypes: str = "bf16", is_apart: bool = False, **options: Any) -> str:
    """Adds a kernel; returns the key by which cases name it. is_apart: one for each number type."""
    words = [spec.rpartition("/")[2], *(f"{name}-{value}" for name, value in sorted(options.items()))]
    key = "_".join(words + [dtypes] * is_apart)
    found = KERNELS.get(key)
    types = ",".join(dict.fromkeys([*(found.dtypes.split(",") if found else []), *dtypes.split(",")]))
    KERNELS[key] = Kernel(spec, options, types)
    return key


class Case(NamedTuple):
    """One measurement. peer: what is timed in place of the kernel, which then says what operands and inputs are."""

    part: str  # "attention", "backward", "decode", "rows", "calls", "machine"
    label: str
    kernel: str = ""
    peer: str = ""
    dtype: str = "bfloat16"
    batches: int = 4
    heads: int = 16
    key_heads: int = 16
    queries: int = 4096
    keys: int = 4096
    head_dim: int = 64
    causal: bool = False
    formula: str = ""  # of formulas.py; "": none is written there
    short: bool = False
    operands: bool = False  # gradients of operands, too
    seen: float = 1.0  # share of pairs that the encoding's mask leaves

    @property
    def shape(self) -> str:
        heads = str(self.heads) if self.heads == self.key_heads else f"{self.heads}+{self.key_heads}"
        tokens = str(self.queries) if self.queries == self.keys else f"{self.queries} x {self.keys}"
        return f"[{self.batches},{heads},{tokens},{self.head_dim}]"

    @property
    def name(self) -> str:
        words = [self.part, self.label, self.peer or "pegen", self.dtype, self.shape]
        return " ".join(words + ["causal"] * self.causal + ["operands"] * self.operands)


# ---- attention: (label, description, formula, options, head_dims that are in the short run, others) ----

_ATTENTION = [
    ("plain", "attention", "plain", {}, (64, 128), (256,)),
    ("ALiBi", "alibi", "alibi", {"heads": 16}, (64, 128), ()),
    ("RoPE inside", "rope_inside", "rope_inside", {}, (128,), (64,)),
    ("softcap", "softcap", "softcap", {}, (), (64, 128)),
    ("window of 257", "window", "window", {}, (64,), (128,)),
    ("Kerple", "more/kerple", "kerple", {"heads": 16}, (), (64,)),
    ("bias table", "relative_bias_table", "table", {"heads": 16, "window_h": GRID, "window_w": GRID}, (), (64,)),
    ("LookHere", "lookhere", "", {"heads": 16}, (), (64,)),
    ("PaPE pairwise", "pape", "pape", {"role": "pairwise"}, (64,), (128,)),
    ("Linear GeoPE", "lingeope", "", {}, (), (64,)),
]
_SEEN = {"window": (257 * 4096 - 128 * 129) / 4096**2}
_SDPA = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")


def _attention(part: str) -> list[Case]:
    """The kernels beside their peers, forward or backward; shapes in the order of how much they tell."""
    cases = []
    for width in (128, 64, 256):
        rows = [row for row in _ATTENTION if width in row[4] + row[5]]
        for causal, dtype in ((False, "bfloat16"), (True, "bfloat16"), (False, "float16"), (False, "float32")):
            if dtype != "bfloat16" and width != 64:
                continue
            for label, spec, formula, options, telling, _ in rows:
                if (causal or dtype != "bfloat16") and label != "plain" and not (causal and label == "ALiBi"):
                    continue
                short = width in telling and dtype == "bfloat16" and not (causal and (width == 64 or label != "plain"))
                types = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}[dtype]
                key = _kernel(spec, types if formula else f"{types},f32", head_dim=width, **options)
                case = Case(part, label, key, "", dtype, head_dim=width, causal=causal, formula=formula, short=short,
                            seen=_SEEN.get(spec, 1.0))  # fmt: skip
                if label == "plain":
                    for peer in _SDPA:
                        is_short = short and peer != "EFFICIENT_ATTENTION"
                        cases.append(case._replace(kernel="", peer=peer, short=is_short))
                cases.append(case)
        if width == 64:  # compiled in tens of seconds each, so not in a short run
            cases += [
                Case(
                    part,
                    label,
                    _kernel(spec, head_dim=width, **options),
                    "FlexAttention",
                    head_dim=width,
                    formula=formula,
                )
                for label, spec, formula, options, _, _ in rows
                if formula not in ("", "rope_inside", "window")
            ]
    return cases


def _decode() -> list[Case]:
    cases = []
    for batches, keys in ((1, 4096), (1, 32768), (32, 4096)):
        sizes = dict(batches=batches, heads=32, key_heads=8, queries=1, keys=keys, head_dim=128)
        for label, spec, options in (("plain", "attention", {}), ("ALiBi", "alibi", {"heads": 32})):
            key = _kernel(spec, head_dim=128, **options)
            formula = label.lower()
            if label == "plain":
                cases.append(Case("decode", label, "", "SDPA", formula=formula, **sizes))
            cases.append(Case("decode", label, key, formula=formula, **sizes))
    return cases


# ---- rows: (description, options), on images' shapes but where it says ----

_LANGUAGE = dict(batches=4, heads=32, key_heads=8, queries=8192, keys=8192, head_dim=128)
_IMAGES = dict(batches=256, heads=12, key_heads=12, queries=196, keys=196, head_dim=64)
_FEW_IMAGES = {**_IMAGES, "batches": 16}
_VIDEO = dict(batches=16, heads=12, key_heads=12, queries=3136, keys=3136, head_dim=96)
_ROWS = [
    ("rope", {"layout": "split"}, _LANGUAGE), ("rope_axial", {}, _IMAGES), ("rope_mixed", {}, _IMAGES),
    ("rope_mixed", {"heads": 12}, _IMAGES), ("geope2d", {}, _IMAGES), ("geope3d", {}, _VIDEO),
    ("spherical", {}, _IMAGES), ("care", {}, _IMAGES), ("care", {"heads": 12}, _IMAGES), ("quatro", {}, _IMAGES),
    ("quatro", {"heads": 12}, _IMAGES), ("string_cayley", {}, _IMAGES), ("liere", {"block": 8}, _IMAGES),
    ("comrope_ap", {}, _IMAGES), ("liere", {}, _FEW_IMAGES), ("pape", {}, _IMAGES),
]  # fmt: skip
_WIDENING = ("pape",)  # these append columns, in numbers that depend on the number type


def _rows() -> list[Case]:
    cases = []
    for dtype, short in (("bfloat16", "bf16"), ("float32", "f32")):
        for spec, options, sizes in _ROWS:
            words = ", ".join(f"{key} {value}" for key, value in options.items())
            label = f"{spec} ({words})" if words else spec
            key = _kernel(spec, short, spec in _WIDENING, head_dim=sizes["head_dim"], **options)
            cases.append(Case("rows", label, key, "", dtype, **sizes))
            if spec == "rope" and dtype == "bfloat16":
                cases += [
                    Case("rows", label, "", peer, dtype, **sizes) for peer in ("Triton", "torch.compile", "eager")
                ]
    return cases


def _row_gradients() -> list[Case]:
    found = {case.kernel: case for case in _rows() if case.kernel}
    cases = []
    for spec, options, is_of_operands in (
        ("rope", {"layout": "split"}, False), ("care", {"heads": 12}, True), ("liere", {"block": 8}, True)
    ):  # fmt: skip
        width = 128 if spec == "rope" else 64
        case = found[_kernel(spec, "f32", head_dim=width, **options)]
        cases.append(case._replace(part="row gradients", dtype="float32", operands=is_of_operands))
    return cases


def _calls() -> list[Case]:
    key = _kernel("rope", head_dim=64)
    sizes = dict(batches=1, heads=1, key_heads=1, queries=1, keys=1, head_dim=64)
    ways = ("kernel.encode in place", "module", "module, forward and backward", "torch: x * 2")
    return [Case("calls", way, "" if "torch:" in way else key, **sizes) for way in ways]


MACHINE = [
    Case("machine", "matrix product 8192^3, bf16", peer="matmul", short=True),
    Case("machine", "copy of 1 GiB", peer="copy", short=True),
]
PARTS = {
    "attention": _attention("attention"),
    "backward": _attention("backward") + _row_gradients(),
    "decode": _decode(),
    "rows": _rows(),
    "calls": _calls(),
}


def cases_of(parts: list[str], short: bool) -> list[Case]:
    """In the order in which they are measured: last what takes long to compile."""
    chosen = [case for part in parts for case in PARTS[part] if case.short or not short]
    return MACHINE + sorted(chosen, key=lambda case: case.peer == "FlexAttention")
