"""Objects and shared objects of --abi tvm-ffi in apache-tvm-ffi: loaded, called on arrays of NumPy, refused."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy
import tvm_ffi

import pegen_kernels as pk
from pegen_kernels import _native


def rows(*shape, seed=1):
    return numpy.random.default_rng(seed).standard_normal(shape).astype("float32")


class Module(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.kernel = pk.compile("rope_mixed", heads=4, head_dim=16, targets="native")
        for ending in ("so", "o"):
            subprocess.run([_native.program(), os.fspath(_native.specs() / "rope_mixed.lua"), "-D", "heads=4", "-D",
                            "head_dim=16", "--target", "native", "--abi", "tvm-ffi", "-o",
                            os.fspath(cls.path(ending))], check=True)  # fmt: skip

    @classmethod
    def path(cls, ending):
        return pathlib.Path(cls.folder.name, f"kernel.{ending}")

    def check(self, module):
        q, k, places, freqs = rows(2, 4, 7, 16), rows(2, 4, 7, 16, seed=2), rows(7, 2), rows(2, 4, 8)
        out = [numpy.zeros_like(q), numpy.zeros_like(k)]
        tensors = [tvm_ffi.from_dlpack(x) for x in (q, k, places, freqs, *out)]
        module.rope_mixed_encode(*tensors[:3], None, *tensors[3:])
        for got, expected in zip(out, self.kernel.encode(q, k, places, operands=[freqs])):
            self.assertTrue(numpy.array_equal(got, expected))
        with self.assertRaisesRegex(ValueError, "rope_mixed_encode: positions is neither"):
            module.rope_mixed_encode(*tensors[:2], tvm_ffi.from_dlpack(places[:3]), None, *tensors[3:])
        with self.assertRaisesRegex(TypeError, "rope_mixed_encode: q: expected a tensor, or None"):
            module.rope_mixed_encode("q", *tensors[1:3], None, *tensors[3:])
        self.assertTrue(numpy.array_equal(q, rows(2, 4, 7, 16)))

    def check_append(self, module):
        q, k, v, places, freqs = (
            rows(2, 4, 7, 16),
            *(rows(2, 4, 7, 16, seed=i) for i in (2, 3)),
            rows(7, 2),
            rows(2, 4, 8),
        )
        slots, weights = numpy.arange(14)[::-1].reshape(2, 7).copy(), [rows(16, seed=i) for i in (4, 5)]
        weights[1] = weights[1].astype("float16")
        caches, out = [numpy.zeros((4, 5, 4, 16), "float32") for _ in range(4)], numpy.zeros_like(q)
        arguments = [q, k, v, places, None, freqs, slots, out, *caches[:2], *weights]
        arguments = [x if x is None else tvm_ffi.from_dlpack(x) for x in arguments]
        module.rope_mixed_append(*arguments, 1e-5)
        norms = {"q_norm": weights[0], "k_norm": weights[1], "epsilon": 1e-5}
        places_of = {"cache": caches[2], "v_cache": caches[3], "slots": slots}
        expected = self.kernel.append(q, k, v, places, operands=[freqs], **places_of, **norms)
        self.assertTrue(numpy.array_equal(out, expected))
        self.assertTrue(caches[2].any() and numpy.array_equal(caches[0], caches[2]))
        self.assertTrue(numpy.array_equal(caches[1].reshape(20, 4, 16)[slots[0, 0]], v[0, :, 0]))
        self.assertTrue(numpy.array_equal(caches[1], caches[3]))
        room = numpy.zeros(module.rope_mixed_table_bytes(*arguments[3:6]) + 64, "uint8")
        room = tvm_ffi.from_dlpack(room[-room.ctypes.data % 64 :][: len(room) - 64])
        module.rope_mixed_prepare(*arguments[3:6], room)
        out[:] = 0
        tabled = [*arguments[:3], None, None, None, *arguments[6:], 1e-5, None, None, None, room]
        module.rope_mixed_append(*tabled)
        self.assertTrue(numpy.array_equal(out, expected))
        with self.assertRaisesRegex(ValueError, "rope_mixed_append: "):
            module.rope_mixed_append(*arguments, -1.0)
        with self.assertRaisesRegex(TypeError, "rope_mixed_append: slots: expected a tensor, or None"):
            module.rope_mixed_append(*arguments[:6], 3, *arguments[7:])

    def test_shared(self):
        self.check(tvm_ffi.load_module(os.fspath(self.path("so"))))

    def test_append(self):
        self.check_append(tvm_ffi.load_module(os.fspath(self.path("so"))))

    def test_object(self):
        try:
            import tvm_ffi_orcjit
        except ImportError:
            self.skipTest("apache-tvm-ffi-orcjit is not installed")
        self.check(tvm_ffi_orcjit.default_session().load_module(os.fspath(self.path("o"))))


if __name__ == "__main__":
    unittest.main()
