#!/usr/bin/env python3
"""json_test.py PEGEN SPECS [FAKE]: `pegen bench --json` of rotors, of attention, and, with FAKE, of a GPU.

One object on the standard output, with the machine, the command as a shell takes it, and rows whose figures agree with
each other; nothing at all where the bench fails. FAKE is the folder of a CUDA driver that runs on the host.
"""
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import tempfile

pegen, specs = sys.argv[1], pathlib.Path(sys.argv[2])
environment = dict(os.environ)
if len(sys.argv) > 3:
    environment["LD_LIBRARY_PATH"] = sys.argv[3]


def bench(*arguments):
    words = ["bench", *arguments, "--json"]
    done = subprocess.run([pegen, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (words, done.returncode, done.stderr)
    report = json.loads(done.stdout)
    assert shlex.split(report["command"])[1:] == words, report["command"]
    assert done.stdout.count('"command"') == 1 and report["pegen"].count(".") >= 1
    for row in report["rows"]:
        assert row["dtype"] in ("f32", "bf16", "f16") and row["samples"] > 0 and row["seconds"] > 0, row
    return report


def machine_is_told(machine):
    assert machine["architecture"] == platform.machine() and machine["processors"] >= 1, machine
    about = pathlib.Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    first = dict(
        [part.strip() for part in line.split(":", 1)] for line in about.split("\n\n")[0].splitlines() if ":" in line
    )
    assert machine.get("processor") == first.get("model name"), machine
    assert machine.get("flags") == (first.get("flags") or first.get("Features", "")).split(), machine
    folder = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")
    assert len(machine["caches"]) == len(list(folder.glob("index*"))), machine
    for cache in machine["caches"]:
        assert cache["level"] >= 1 and cache["bytes"] >= 1024, cache


def near(x, y):
    return abs(x - y) <= 1e-9 * abs(y)


def rotors():
    report = bench(str(specs / "rope.lua"), "--shape", "1,8,2", "--dtype", "f32,bf16", "--layout", "bnhd,bhnd")
    machine_is_told(report["machine"])
    rows = report["rows"]
    assert [(r["dtype"], r["layout"], r["in_place"]) for r in rows] == [
        (dtype, layout, in_place)
        for dtype in ("f32", "bf16")
        for layout in ("bnhd", "bhnd")
        for in_place in (True, False)
    ], rows
    for row in rows:
        assert (row["batch"], row["tokens"], row["heads"], row["head_dim"], row["threads"]) == (1, 8, 2, 64, 1), row
        assert row["bytes"] == 4 * 8 * 2 * 64 * (4 if row["dtype"] == "f32" else 2), row
        assert near(row["ratio"], min(loop["seconds"] for loop in row["limits"]) / row["seconds"]), row
        assert len({loop["loop"] for loop in row["limits"]}) == (3 if row["in_place"] else 5), row
    tabled = bench(
        str(specs / "rope_mixed.lua"), "-D", "heads=2", "--shape", "decode", "--table", "--threads", "2", "--in-place"
    )
    (row,) = tabled["rows"]
    assert row["shape"] == "decode" and "ratio" not in row and "limits" not in row, row
    assert row["table_bytes"] > 0 and row["prepare_seconds"] > 0 and row["seconds_of_one_thread"] > 0, row
    assert "heads=2" in row["options"] and row["kernel"] == "rope_mixed", row
    assert "gradient_table_bytes" not in row, row
    (row,) = bench(
        str(specs / "rope_mixed.lua"), "-D", "heads=2", "--shape", "1,8,2", "--table", "--backward", "--in-place"
    )["rows"]
    assert row["gradient_table_bytes"] >= 8 * 2 * 32 * 8, row  # tokens, heads, a float64 of each block
    assert row["backward_seconds"] > 0 and row["backward_rows_seconds"] > 0, row
    assert row["prepare_seconds"] > 0 and row["prepare_backward_seconds"] > 0, row


def then_read():
    """A reading counts as bytes, and takes time of the call and of its limits alike."""
    words = [str(specs / "rope.lua"), "--shape", "4,96,12", "--out-of-place"]
    (alone,), (read,) = bench(*words)["rows"], bench(*words, "--then-read")["rows"]
    assert (alone["then_read"], read["then_read"]) == (False, True), (alone, read)
    tensor = 4 * 96 * 12 * 64 * 4
    assert (alone["bytes"], read["bytes"]) == (4 * tensor, 6 * tensor), (alone, read)
    assert near(read["ratio"], min(loop["seconds"] for loop in read["limits"]) / read["seconds"]), read


def append():
    """With norms and without, beside the separate calls; loops of q with those of rows."""
    rows = bench(str(specs / "rope.lua"), "--shape", "2,20,3", "--append", "--dtype", "f32,bf16")["rows"]
    assert [(r["dtype"], r["in_place"]) for r in rows] == [(t, p) for t in ("f32", "bf16") for p in (True, False)], rows
    for row in rows:
        assert row["entry"] == "append" and row["threads"] == 1 and row["key_heads"] == 3, row
        assert row["bytes"] == 6 * 2 * 20 * 3 * 64 * (4 if row["dtype"] == "f32" else 2), row
        limit = min(loop["seconds"] for loop in row["limits"])
        assert len({loop["loop"] for loop in row["limits"]}) == (6 if row["in_place"] else 5), row
        assert near(row["ratio"], limit / row["seconds"]), row
        assert near(row["without_norms_ratio"], limit / row["without_norms_seconds"]), row
        ratio = row["without_norms_seconds"] / row["separate_seconds"]
        assert near(row["without_norms_of_separate"], ratio) and ratio > 0, row
    words = ["--shape", "2,20,6", "--append", "--group", "3", "--in-place", "--layout", "bnhd,bhnd"]
    for row in bench(str(specs / "rope.lua"), *words)["rows"]:
        assert (row["heads"], row["key_heads"], row["bytes"]) == (6, 2, 2 * 20 * 64 * 4 * (2 * 6 + 4 * 2)), row
        assert row["limits"] and row["ratio"] > 0, row
    (row,) = bench(
        str(specs / "rope_mixed.lua"), "-D", "heads=2", "--shape", "decode", "--append", "--table", "--in-place"
    )["rows"]
    assert row["table_bytes"] > 0 and "limits" not in row and "ratio" not in row, row


def attention():
    (row,) = bench(str(specs / "alibi.lua"), "--shape", "1,40,8")["rows"]
    assert row["kernel"] == "alibi" and near(row["times_plain"], row["seconds"] / row["plain_seconds"]), row
    assert row["plain_flops"] == 4 * 8 * 40 * 40 * 64, row
    assert near(row["plain_of_peak"], row["plain_flops"] / row["plain_seconds"] / row["peak_flops_per_second"]), row


def keys():
    """Few queries: limits, and times beside them."""
    words = ["--shape", "2,1,6", "--keys", "40,70", "--group", "3", "--dtype", "f32,bf16"]
    rows = bench(str(specs / "alibi.lua"), "-D", "heads=6", *words)["rows"]
    assert [(row["dtype"], row["keys"]) for row in rows] == [(t, m) for t in ("f32", "bf16") for m in (40, 70)], rows
    for row in rows:
        assert (row["batch"], row["tokens"], row["heads"], row["key_heads"]) == (2, 1, 6, 2), row
        assert row["bytes"] == 2 * 2 * 2 * row["keys"] * 64 * (4 if row["dtype"] == "f32" else 2), row
        assert row["plain_flops"] == 4 * 2 * 6 * row["keys"] * 64 and row["reading_seconds"] > 0, row
        assert near(row["multiply_add_seconds"], row["plain_flops"] / row["peak_flops_per_second"]), row
        limit = max(row["reading_seconds"], row["multiply_add_seconds"])
        assert near(row["plain_ratio"], limit / row["plain_seconds"]), row
        assert near(row["ratio"], limit / row["seconds"]) and "seen" not in row, row


def seen():
    """Shares of pairs that a mask and that causal attention leave, and times beside them."""
    with tempfile.TemporaryDirectory() as folder:
        window = pathlib.Path(folder) / "window.lua"
        window.write_text(
            'local pe = require "pegen"\nreturn pe.encoding { name = "window", axes = { "t" }, head_dim = 16,\n'
            "  bias = function(delta) return pe.where(-delta.t, 8, 0, pe.masked) end }\n"
        )
        (row,) = bench(str(window), "--shape", "1,40,2", "--causal")["rows"]
        pairs = 40 * 8 - 8 * 7 // 2
        (last,) = bench(str(window), "--shape", "1,1,2", "--keys", "40")["rows"]
        (causal,) = bench(str(specs / "attention.lua"), "--shape", "1,40,2", "--causal")["rows"]
    assert near(row["seen"], pairs / 40**2) and near(last["seen"], 8 / 40), (row, last)
    assert near(causal["seen"], 41 / 80), causal
    for of in (row, last, causal):
        assert near(of["times_share"], of["seconds"] / (of["plain_seconds"] * of["seen"])), of


def gpu():
    rows = bench(str(specs / "care.lua"), "--target", "sm_80", "--shape", "2,3,4", "--in-place")["rows"]
    assert len(rows) == 1 and rows[0]["device"] and rows[0]["targets"] == "sm_80", rows
    assert near(rows[0]["ratio"], rows[0]["copy_seconds"] / rows[0]["seconds"]), rows


def gpu_attention():
    """On the stand-in a launch takes 1 ms, and a copy of 256 MiB, too.

    Two launches are those of split keys in decode, or of gradients without sums."""
    words = [str(specs / "alibi.lua"), "--target", "sm_80", "--dtype", "f32,bf16"]
    whole = bench(*words, "--shape", "1,40,8", "--backward", "--causal")["rows"]
    few = bench(*words, "--keys", "40,4096", "--group", "2")["rows"]
    assert [(r["dtype"], r["tokens"], r["keys"]) for r in whole + few] == [
        *(("f32", 40, 40), ("bf16", 40, 40)),
        *((dtype, 1, keys) for dtype in ("f32", "bf16") for keys in (40, 4096)),
    ], (whole, few)
    for row in whole + few:
        seconds = 2e-3 if row["keys"] == 4096 else 1e-3
        assert row["device"] and row["targets"] == "sm_80" and "threads" not in row, row
        assert near(row["seconds"], seconds) and near(row["plain_seconds"], seconds), row
        assert near(row["times_plain"], 1), row
        assert ("mma.sync" in row["peak_loop"]) == (row["dtype"] == "bf16"), row
        assert row["bytes"] == 2 * row["key_heads"] * row["keys"] * 64 * (4 if row["dtype"] == "f32" else 2), row
        assert near(row["reading_seconds"], 1e-3 * row["bytes"] / 2**29), row
        assert near(row["multiply_add_seconds"], row["plain_flops"] / row["peak_flops_per_second"]), row
        limit = max(row["reading_seconds"], row["multiply_add_seconds"])
        assert near(row["ratio"], limit / row["seconds"]), row
    table = str(specs.parent / "tests/attention/scores.lua")  # whose operand has no gradient
    rows = bench(table, "-D", "kind=table", *words[1:], "--shape", "1,9,2", "--backward")["rows"]
    assert [near(row["backward_seconds"], 2e-3) for row in rows] == [True, True], rows
    for row in whole:
        assert near(row["backward_seconds"], 2e-3) and near(row["seen"], 41 / 80) and row["key_heads"] == 8, row


def failures_print_nothing():
    for arguments in (
        ["rope.lua", "--shape", "1,2,3,63"],
        ["pape.lua", "--table"],
        ["alibi.lua", "--shape", "1,2,3,63"],
        ["alibi.lua", "--shape", "1,8,8", "--then-read"],
        ["rope.lua", "--target", "sm_80", "--then-read"],
        ["rope.lua", "--target", "sm_80", "--append"],
        ["rope.lua", "--shape", "1,8,2", "--append", "--backward"],
        ["rope.lua", "--shape", "1,8,2", "--append", "--group", "3"],
        ["rope.lua", "--shape", "1,8,2", "--group", "2"],
        ["rope.lua", "--shape", "1,1,2", "--keys", "8"],
        ["rope.lua", "--shape", "1,8,2", "--causal"],
        ["alibi.lua", "--shape", "1,9,8", "--keys", "8"],
        ["alibi.lua", "--shape", "1,1,8", "--keys", "8", "--group", "3"],
        ["alibi.lua", "--shape", "1,1,8", "--keys", "8", "--backward"],
    ):
        words = [pegen, "bench", str(specs / arguments[0]), *arguments[1:], "--json"]
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        assert done.returncode != 0 and done.stdout == "" and "error: " in done.stderr, (words, done)


if len(sys.argv) > 3:
    gpu()
    gpu_attention()
else:
    rotors()
    then_read()
    append()
    attention()
    keys()
    seen()
    failures_print_nothing()
