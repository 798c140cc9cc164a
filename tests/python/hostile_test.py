"""Surroundings that go wrong: files and programs that vanish, a full disk, forks, many threads and processes, tensors
of other devices. An exception says what it is, and what there was works on."""
import concurrent.futures
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

import pegen_kernels as pk

FAST = {"targets": "native", "dtypes": "float32"}
TURN = """local pe = require "pegen"
return pe.encoding { name = "turn", axes = { "t" }, head_dim = pe.option("head_dim", 8, "channels"),
  block = pe.plane(), generators = { t = pe.bivector { e12 = 1 } }, phase = function(axis, i) return 1 / (i + 1) end }
"""
Q, PLACES = numpy.arange(48, dtype="float32").reshape(1, 2, 3, 8), numpy.arange(3)[:, None]

try:
    import torch
except ImportError:
    torch = None


def child(width):
    """In a process of its own, forked after the parent had loaded kernels."""
    kernel = pk.compile(TURN, head_dim=width, **FAST)
    x = numpy.ones((1, 1, 3, width), "float32")
    return kernel.head_dim, float(kernel.encode(x, positions=PLACES, threads=2)[0, 0, 0, 0])


class Hostile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.kernel = pk.compile(TURN, **FAST)
        self.expected = self.kernel.encode(Q, positions=PLACES)

    def tearDown(self):
        self.works(self.kernel)

    def works(self, kernel):
        self.assertTrue(numpy.array_equal(kernel.encode(Q, positions=PLACES), self.expected))

    def refused(self, words, call, *given, **options):
        self.assertRaisesRegex(pk.CompileError, words, call, *given, **options)

    def test_deleted_files(self):
        spec, saved, cache = self.folder / "turn.lua", self.folder / "turn.so", self.folder / "cache"
        spec.write_text(TURN)
        kernel = pk.compile(spec, cache=cache, **FAST)
        kernel.save(saved)
        loaded = pk.load(saved)
        for path in (spec, saved):
            path.unlink()
        shutil.rmtree(cache)
        self.works(kernel)
        self.works(loaded)
        self.refused("^spec: no description", pk.compile, spec, cache=cache, **FAST)
        self.refused("^path: there is no file", pk.load, saved)
        self.refused("turn.lua", kernel.explain)
        self.refused("turn.lua", kernel.check)
        kernel.save(saved)
        self.works(pk.load(saved))
        spec.write_text(TURN)
        self.works(pk.compile(spec, cache=cache, **FAST))
        with self.assertRaises(FileNotFoundError):
            kernel.save(self.folder / "no" / "such" / "folder.so")

    def test_damaged_files(self):
        path = self.folder / "turn.so"
        for data in (b"", b"\x7fELF", b"no kernel at all", self.kernel._data[: len(self.kernel._data) // 2]):
            path.write_bytes(data)
            self.refused("is no kernel", pk.load, path)
        self.refused("^path: there is no file", pk.load, self.folder)
        spec = self.folder / "bytes.lua"
        spec.write_bytes(bytes(range(256)))
        self.refused("bytes.lua", pk.compile, spec, **FAST)

    def test_deleted_program(self):
        program = self.folder / "pegen"
        old = os.environ.get("PEGEN")
        try:
            os.environ["PEGEN"] = str(program)
            self.refused("cannot run the compiler", pk.compile, TURN, cache="", **FAST)
            program.write_text("#!/bin/sh\nkill -9 $$\n")
            program.chmod(0o755)
            self.refused("ended by signal 9", pk.compile, TURN, cache="", **FAST)
            program.write_text("#!/bin/sh\nexit 0\n")
            self.refused("", pk.compile, TURN, cache="", **FAST)
        finally:
            os.environ.pop("PEGEN")
            if old:
                os.environ["PEGEN"] = old

    def test_full_disk(self):
        """A cache without room: kernels are compiled each time, and nothing half-written stays."""
        script = f"""
import numpy, os, pegen_kernels as pk
for i in range(2):
    kernel = pk.compile({TURN!r}, cache="small/cache", targets="native", dtypes="float32")
    assert not kernel.from_cache
    kernel.encode(numpy.ones((1, 1, 3, 8), "f"), positions=numpy.eye(3)[:, :1])
assert os.listdir("small/cache") == [], os.listdir("small/cache")
try:
    kernel.save("small/kernel.so")
except OSError as e:
    assert e.errno == 28, e
else:
    raise AssertionError("a full disk took a kernel")
assert os.listdir("small") == ["cache"]
print("compiled twice")
"""
        mount = "mkdir small && mount -t tmpfs -o size=8k tmpfs small || exit 77"
        done = subprocess.run(
            ["unshare", "-Urm", "sh", "-c", f"{mount}; exec '{sys.executable}' -c \"$1\"", "sh", script],
            cwd=self.folder, capture_output=True, text=True, env={**os.environ, "PEGEN_CACHE": ""},
        )  # fmt: skip
        if done.returncode == 77 or "unshare" in done.stderr:
            self.skipTest("no file system of its own here: tests/compiler fails the library's writes instead")
        self.assertEqual((done.stdout, done.returncode), ("compiled twice\n", 0), done.stderr)

    def test_forks(self):
        """Children that are forked while threads compile and call have kernels of their own."""
        self.kernel.encode(Q, positions=PLACES, threads=2)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            busy = [pool.submit(pk.compile, TURN, head_dim=8 + 8 * i, cache="", **FAST) for i in range(4)]
            with multiprocessing.get_context("fork").Pool(3) as children:
                self.assertEqual(children.map(child, [16, 24, 16, 8]), [(16, 1), (24, 1), (16, 1), (8, 1)])
            self.assertEqual([x.result().head_dim for x in busy], [8, 16, 24, 32])

    def test_threads(self):
        """Threads compile one description at once, sound and broken."""
        cache = self.folder / "cache"
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            kernels = list(pool.map(lambda _: pk.compile(TURN, cache=cache, **FAST), range(8)))
            self.assertEqual(sum(not kernel.from_cache for kernel in kernels), 1)
            broken = [pool.submit(pk.compile, TURN + "x(", label="x.lua", cache=cache, **FAST) for _ in range(4)]
            for future in broken:
                self.refused("^x.lua:4: error", future.result)
            list(pool.map(self.works, kernels))

    def test_small_cache(self):
        cache = self.folder / "cache"
        old = [cache / f"{i:032x}-{i:032x}.so" for i in range(3)]
        pk.compile(TURN, cache=cache, **FAST)
        for path in old:
            path.write_bytes(b"x" * 500_000)
            os.utime(path, (1, 1))
        pk.compile(TURN, head_dim=16, cache=cache, max_cache=-1, **FAST)
        self.assertTrue(all(path.exists() for path in old))
        pk.compile(TURN, head_dim=24, cache=cache, max_cache=1, **FAST)
        self.assertEqual(sum(path.exists() for path in old), 1)
        self.assertTrue(pk.compile(TURN, cache=cache, **FAST).from_cache)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_tensors(self):
        from pegen_kernels.torch import Encoding

        module, q, places = Encoding(TURN, **FAST), torch.from_numpy(Q), torch.from_numpy(PLACES)
        for words, call in [
            ("q is of type torch.float32, torch.strided, on meta", lambda x: x.encode(q.to("meta"), positions=places)),
            ("out of q is of type .*, on meta", lambda x: x.encode(q, positions=places, out=q.to("meta"))),
            ("q is of type .*sparse", lambda x: x.encode(q.to_sparse(), positions=places)),
            ("q is of type int64", lambda x: x.encode(q.long(), positions=places)),
            ("q is of type torch.complex64|q is of type complex", lambda x: x.encode(q.cfloat(), positions=places)),
            ("q requires a gradient", lambda x: x.encode(q.clone().requires_grad_(), positions=places)),
        ]:
            with self.subTest(words):
                self.assertRaisesRegex(pk.ArgumentError, words, call, self.kernel)
        for words, given in [("q is of type int64", (q.long(), None, places)), ("q has 2 dim", (q[0, 0], None, places)),
                             ("positions are of 2 tokens", (q, None, places[:2]))]:  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(pk.ArgumentError, words):
                module(*given)
        with self.assertRaisesRegex(RuntimeError, "floating point"):
            module(q, None, places.requires_grad_())  # the gradient of an integer is PyTorch's to refuse
        self.assertTrue(numpy.array_equal(module(q, None, places).detach().numpy(), self.expected))


if __name__ == "__main__":
    unittest.main()
