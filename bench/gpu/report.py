"""Tables in Markdown of what bench.py measured."""
from __future__ import annotations

import math
from typing import Any, Callable

Row = dict[str, Any]
_PEERS = {"FLASH_ATTENTION": "FlashAttention (SDPA)", "CUDNN_ATTENTION": "cuDNN (SDPA)",
          "EFFICIENT_ATTENTION": "memory-efficient (SDPA)"}  # fmt: skip


def _number(x: Any, digits: int = 3) -> str:
    """x with so many digits that count; a dash where there is none."""
    if x is None:
        return "–"
    if not math.isfinite(x):
        return "NaN"
    places = max(0, digits - 1 - math.floor(math.log10(abs(x)))) if x else 0
    return f"{x:.{min(places, 6)}f}"


def _error(row: Row, name: str) -> str:
    value = row.get(name)
    return "–" if value is None else "**NaN**" if not math.isfinite(value) else f"{value:.1e}"


def _ratio(row: Row) -> str:
    values = row.get("max_ratio"), row.get("mean_ratio")
    if None in values or not all(math.isfinite(x) for x in values):
        return "–"
    return f"{values[0]:.2f} · {values[1]:.2f}"


def _who(row: Row) -> str:
    return _PEERS.get(row["peer"], row["peer"]) or "**pegen**"


def _notes(row: Row) -> str:
    notes = []
    if row.get("error"):
        notes.append(row["error"].replace("|", "\\|")[:160])
    if row.get("wrong"):
        notes.append("**wrong**")
    if row.get("same_bits") is False:
        notes.append("**other bits when run again**")
    if row.get("way") == "events" and row.get("graph_error"):
        notes.append("not in a graph: " + row["graph_error"].replace("|", "\\|")[:80])
    return "; ".join(notes)


def _scaled(name: str, factor: float = 1, digits: int = 3) -> Callable[[Row], str]:
    return lambda row: _number(row[name] * factor if row.get(name) is not None else None, digits)


_MS, _US = ("ms", _scaled("seconds", 1e3)), ("us", _scaled("seconds", 1e6))
_ERRORS = [("max error", lambda row: _error(row, "max_error")), ("mean error", lambda row: _error(row, "mean_error"))]
_RATIO = ("× PyTorch's (max · mean)", _ratio)
_FIRST = ("first call, s", _scaled("first_call_seconds", 1, 2))
_NOTES = ("", _notes)
_WHAT = [("encoding", lambda row: row["label"]), ("", _who)]
_SHAPE = ("shape", lambda row: row["shape"])
_FLOPS = ("TFLOP/s", _scaled("tflops"))
_COLUMNS = {
    "machine": [("", lambda row: row["label"]), _MS, _FLOPS, ("GB/s", _scaled("gbs", 1, 4)), _NOTES],
    "attention": [*_WHAT, _MS, _FLOPS, ("of the matrix product", _scaled("of_peak", 1, 2)), *_ERRORS, _RATIO, _FIRST,
                  _NOTES],
    "decode": [*_WHAT, _SHAPE, _US, ("GB/s of keys and values", _scaled("gbs", 1, 4)), *_ERRORS, _RATIO, _NOTES],
    "rows": [*_WHAT, _SHAPE, _US, ("GB/s", _scaled("gbs", 1, 4)), ("of a copy", _scaled("of_copy", 1, 2)), *_ERRORS,
             _FIRST, _NOTES],
    "row gradients": [("encoding", lambda row: row["label"] + ", operands" * row["operands"]), _SHAPE, _US, *_ERRORS,
                      _FIRST, _NOTES],
    "calls": [("", lambda row: row["label"]), ("us of the host", _scaled("seconds", 1e6)), _NOTES],
}  # fmt: skip
_COLUMNS["backward"] = _COLUMNS["attention"]
_TITLES = {
    "machine": "The machine", "attention": "Attention, forward", "backward": "Attention, gradients of q, k and v",
    "decode": "Decode: one query for each sequence", "rows": "Rows, q and k in one call",
    "row gradients": "Gradients of rows", "calls": "A call on one row",
}  # fmt: skip
_READ = """Times are medians of CUDA graph replays over cycled buffers (SDPA's gradients: between events). Attention
counts 4 B H N M D operations, half of them where it is causal, gradients 2.5 times as many. Errors are those of two
heads of the last batch against float64: the largest of the largest value, the mean of the mean value. They stand beside
those of attention without positions in PyTorch on the same rows (FlashAttention; of float32 its memory-efficient
kernel)."""


def _group(row: Row) -> tuple[str, str]:
    """Part and heading; rows with equal ones are a table."""
    if row["part"] in ("attention", "backward"):
        return row["part"], f"{row['shape']}, {row['dtype']}" + ", causal" * row["causal"]
    return row["part"], row["dtype"] if row["part"] == "rows" else ""


def _table(columns: list[Any], rows: list[Row]) -> list[str]:
    cells = [[cell(row) for _, cell in columns] for row in rows]
    kept = [i for i in range(len(columns)) if i < 1 or any(line[i] not in ("", "–") for line in cells)]
    lines = [[columns[i][0] for i in kept], ["---"] * len(kept), *([line[i] for i in kept] for line in cells)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def markdown(machine: dict[str, Any], rows: list[Row], left: int) -> str:
    peak = next((row.get("tflops") for row in rows if row["peer"] == "matmul"), None)
    rows = [{**row, "of_peak": row["tflops"] / peak if peak and row.get("tflops") else None} for row in rows]
    words = [f"{name} {machine[name]}" for name in ("torch", "cuda", "driver", "commit") if machine.get(name)]
    lines = [f"## {machine.get('device', 'no device')} ({', '.join(words)})", "", *_READ.splitlines()]
    part = ""
    for group in dict.fromkeys(_group(row) for row in rows):
        if group[0] != part:
            part = group[0]
            lines += ["", f"### {_TITLES[part]}"]
        lines += ["", *([f"{group[1]}:", ""] if group[1] else [])]
        lines += _table(_COLUMNS[part], [row for row in rows if _group(row) == group])
    if left:
        lines += ["", f"{left} measurements were not reached in the time given."]
    return "\n".join(lines) + "\n"
