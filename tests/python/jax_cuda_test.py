"""JAX's calls on a GPU over a stand-in for libcuda (cuda_test.py): XLA calls the handler for CUDA on the memory of its
processor, with a stream of ours. Which entries are launched, and that none is refused for want of a workspace."""
import ctypes
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import unittest
import unittest.mock

import jax
from jax import numpy as jnp
from stand_in import RUN, driver

import pegen_kernels as pk
from pegen_kernels import _native
from pegen_kernels.jax import attention, calls, encode

ASK = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_NAMES = (
    "create_error error_message destroy_error register_handler get_stream register_type get_context set_state get_state"
    " allocate free schedule count_threads create_future set_available set_error get_run get_ordinal"
)
TURNED = pathlib.Path(__file__).parents[1] / "attention" / "rope_pairwise.lua"
API_OF_FRAME, ANSWER = 16, 24  # offsets, as in runtime/xla/abi.h


class Api(ctypes.Structure):
    """xla_api."""

    _fields_ = [("begin", ctypes.c_char * 48)] + [(name, ctypes.c_void_p) for name in _NAMES.split()]


@ASK
def stream(request):
    ctypes.c_uint64.from_address(request + ANSWER).value = 77


@ASK
def ordinal(request):
    ctypes.c_int32.from_address(request + ANSWER).value = 0


@ASK
def handle(frame):
    place = ctypes.c_void_p.from_address(frame + API_OF_FRAME)
    own = place.value
    if not own:
        return _native.library.pegen_xla_call_cuda(ctypes.c_void_p(frame))
    api = Api.from_buffer_copy((ctypes.c_char * ctypes.sizeof(Api)).from_address(own))
    api.get_stream, api.get_ordinal = (ctypes.cast(f, ctypes.c_void_p).value for f in (stream, ordinal))
    place.value = ctypes.addressof(api)
    try:
        return _native.library.pegen_xla_call_cuda(ctypes.c_void_p(frame))
    finally:
        place.value = own


def register():
    _native.library.pegen_xla_call_cuda.restype = ctypes.c_void_p
    jax.ffi.register_ffi_target("pegen_kernels", jax.ffi.pycapsule(handle), platform="cpu")


class Cuda(unittest.TestCase):
    def setUp(self):
        self.driver = driver()
        self.launched = []
        self.callback = RUN(lambda entry, *rest: self.launched.append(entry.decode()))
        self.driver.run, self.driver.n_parameters = self.callback, 160

    def tearDown(self):
        self.driver.run = RUN()

    @classmethod
    def setUpClass(cls):
        cls.patch = unittest.mock.patch.object(calls, "_register_target", register)
        cls.patch.start()

    @classmethod
    def tearDownClass(cls):
        cls.patch.stop()

    def names(self, kernel, call):
        self.launched.clear()
        jax.block_until_ready(jax.jit(call)())
        self.assertEqual(self.driver.stream, 77)
        return [name.removeprefix(f"{kernel.name}_") for name in self.launched]

    def test_gradients(self):
        mixed = pk.compile("rope_mixed", heads=2, head_dim=64, targets="native,sm_80", dtypes="float32")
        freqs = jnp.ones(mixed.operands[0].shape)
        for tokens in (5, 70):
            q, at = jnp.ones((2, 2, tokens, 64)), jnp.ones((tokens, 2))
            loss = lambda q, at, freqs: encode(mixed, q, positions=at, operands=[freqs]).sum()  # noqa: E731
            of_rows = self.names(mixed, lambda: jax.grad(loss)(q, at, freqs))  # noqa: B023
            self.assertEqual(of_rows, ["encode_backward_f32"])  # nothing of forward is read
            made = self.names(mixed, lambda: jax.grad(loss, (0, 1, 2))(q, at, freqs))  # noqa: B023
            gains = ["f32", "positions", *(["sum"] if tokens > 64 else []), "scatter", "gather"]
            self.assertEqual(made, ["encode_f32", *(f"encode_gradient_{name}" for name in gains)])

    def test_without_targets(self):
        """A kernel that names no GPU is compiled for the device, under jit, vmap, shard_map and grad."""
        rope = pk.compile("rope", head_dim=64, dtypes="float32")
        q, at = jnp.ones((2, 2, 2, 5, 64)), jnp.ones((5, 1))
        turn = lambda q: encode(rope, q, positions=at)  # noqa: E731
        mesh = jax.make_mesh((1,), ("b",), axis_types=(jax.sharding.AxisType.Auto,))
        split = jax.shard_map(turn, mesh=mesh, in_specs=jax.P("b"), out_specs=jax.P("b"))
        with unittest.mock.patch.object(calls, "_has_devices", lambda: True):
            self.assertEqual(self.names(rope, lambda: turn(q[0])), ["encode_f32"])
            self.assertEqual(self.names(rope, lambda: jax.vmap(turn)(q))[:1], ["encode_f32"])
            self.assertEqual(self.names(rope, lambda: split(q[0])), ["encode_f32"])
            gained = jax.vmap(jax.grad(lambda q: turn(q).sum()))
            self.assertEqual(self.names(rope, lambda: gained(q))[-1], "encode_backward_f32")

    def test_attention_of_turned_rows(self):
        rope = pk.compile(TURNED, targets="native,sm_80", dtypes="bfloat16")
        q, at = jnp.ones((1, 2, 70, 32), jnp.bfloat16), jnp.ones((70, 1))
        made = self.names(rope, lambda: attention(rope, q, q, q, at))
        self.assertEqual(made, ["attention_bf16_turn"] * 2 + ["attention_bf16_mma"])
        k, at = jnp.ones((1, 2, 600, 32), jnp.bfloat16), jnp.ones((600, 1))
        few = self.names(rope, lambda: attention(rope, q[:, :, :1], k, k, at[:1], k_positions=at))
        self.assertEqual(few, ["attention_bf16_turn"] * 2 + ["attention_few_bf16_mma", "attention_finish_bf16"])

    def test_attention_of_odd_widths(self):
        """Rows that are no multiple of 16 bytes are copied: shapes alone say how much room that takes."""
        odd = pk.compile("attention", head_dim=33, targets="native,sm_80", dtypes="bfloat16")
        q, at = jnp.ones((2, 2, 5, 33), jnp.bfloat16), jnp.ones((5, 1))
        made = self.names(odd, lambda: jax.grad(lambda *rows: attention(odd, *rows, at).sum(), (0, 1, 2))(q, q, q))
        copy = ["attention_bf16_copy"]
        forward = [*copy * 3, "attention_few_bf16_mma", *copy]
        queries, keys = (f"attention_backward_{rows}_bf16_mma" for rows in ("queries", "keys"))
        self.assertEqual(made, [*forward, *copy * 5, queries, *copy, keys, *copy * 2])

    def test_attention(self):
        alibi = pk.compile("alibi", heads=2, head_dim=64, targets="native,sm_80", dtypes="float32")
        q, at = jnp.ones((2, 2, 5, 64)), jnp.ones((5, 1))
        loss = lambda q, k, v, at: attention(alibi, q, k, v, at).sum()  # noqa: E731
        made = self.names(alibi, lambda: jax.grad(loss, (0, 1, 2, 3))(q, q, q, at))
        backward = ["queries_gains_f32_simt", "keys_gains_f32_simt", "positions", "positions"]
        self.assertEqual(made, ["attention_few_f32_simt", *(f"attention_backward_{name}" for name in backward)])


if __name__ == "__main__":
    unittest.main()
