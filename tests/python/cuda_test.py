"""Calls on a GPU over a stand-in for libcuda, whose device has the host's memory: which entries are launched, with what
workspace, on which stream. What the launched threads compute, tests/ptx holds against processors."""
import unittest
import unittest.mock

import torch
from stand_in import RUN, driver

import pegen_kernels as pk
from pegen_kernels import arrays
from pegen_kernels.torch import operators


def there(x):
    """A tensor as the device's, whose memory is the host's here."""
    seen = arrays.raw_view("x", x)
    return seen._replace(key=(arrays.CUDA, *seen.key[1:]))


class Cuda(unittest.TestCase):
    def setUp(self):
        self.driver = driver()
        self.launched = []
        self.callback = RUN(self.note)
        self.driver.run, self.driver.n_parameters = self.callback, 160

    def tearDown(self):
        self.driver.run = RUN()

    def note(self, entry, x, y, block, parameters):
        self.launched.append((entry.decode(), parameters[: self.driver.n_parameters]))

    def backward(self, kernel, heads, tokens, learns):
        """A call for all gradients, or for those of rows; the workspaces that it took."""
        rows = lambda: there(torch.randn(2, heads, tokens, 64))  # noqa: E731
        tensors = {name: rows() for name in ("grad.q_out", "grad.k_out", "grad.q", "grad.k", "q", "k")}
        tensors["positions"] = there(torch.rand(tokens, 2))
        operands = [there(torch.randn(operand.shape)) for operand in kernel.operands]
        if learns:
            tensors["grad.positions"] = there(torch.zeros(tokens, 2))
            gained = {f"grad.operand.{i}": there(torch.zeros(x.shape)) for i, x in enumerate(operands)}
            tensors |= gained
        rooms, make = [], arrays.room_beside
        with unittest.mock.patch(
            "pegen_kernels.calls.room_beside",
            lambda seen, size: rooms.append((size, made := make(seen, size))) or made,
        ):
            kernel._call("encode_backward", tensors, operands, [], {"flags": 0} if learns else {}, stream=77,
                         workspace="encode_backward_workspace",
                         finish="encode_backward_finish" if learns else "")  # fmt: skip
        return [(size, address) for size, (address, _) in rooms]

    def test_gradients(self):
        """The workspace of a GPU's call is of the size that the launches have, and lies where rows lie."""
        kernel = pk.compile("rope_mixed", heads=2, targets="native,sm_80", dtypes=["float32"])
        for tokens in (5, 70):  # chunks: fewer than are summed at once, and more
            self.launched.clear()
            rooms = self.backward(kernel, 2, tokens, True)
            again = self.backward(kernel, 2, tokens, True)
            self.assertEqual([size for size, _ in rooms], [size for size, _ in again])
            names = [name.removeprefix("rope_mixed_encode_gradient_") for name, _ in self.launched]
            expected = ["f32", "positions", *(["sum"] if tokens > 64 else []), "scatter", "gather"]
            self.assertEqual(names, 2 * expected)
            self.assertEqual(self.driver.stream, 77)
            [(size, address)] = again
            gathers = [of for name, of in self.launched if name.endswith("gather")]
            self.assertTrue(address < gathers[-1][0] < address + size)

    def test_rows(self):
        """Gradients of rows alone take no workspace."""
        kernel = pk.compile("rope_mixed", heads=2, targets="native,sm_80", dtypes=["float32"])
        self.assertEqual(self.backward(kernel, 2, 5, False), [])
        self.assertEqual([name for name, _ in self.launched], ["rope_mixed_encode_backward_f32"])

    def test_attention(self):
        """Positions gain as queries' and as keys'; gradients of what was not given are refused, nothing is launched."""
        kernel = pk.compile("alibi", heads=2, head_dim=64, targets="native,sm_80", dtypes=["float32"])
        rows = ("q", "k", "v", "out", "grad.out", "grad.q")
        tensors = {name: there(torch.randn(2, 2, 5, 64)) for name in rows}
        tensors |= {"lse": there(torch.zeros(2, 2, 5)), "positions": there(torch.rand(5, 1))}

        def call(more):
            kernel._call("attention_backward", tensors | more, [], [], {}, workspace="attention_backward_workspace",
                         finish="attention_backward_finish")  # fmt: skip

        names = lambda: [name.removeprefix("alibi_attention_backward_") for name, _ in self.launched]  # noqa: E731
        call({})
        self.assertEqual(names(), ["queries_f32_simt"])
        self.launched.clear()
        call({"grad.positions": there(torch.zeros(5, 1))})
        self.assertEqual(names(), ["queries_gains_f32_simt", "keys_gains_f32_simt", "positions", "positions"])
        self.launched.clear()
        with self.assertRaisesRegex(pk.ArgumentError, "k_positions: a gradient was asked for that this kernel"):
            call({"grad.k_positions": there(torch.zeros(5, 1))})
        self.assertEqual(names(), [])

    def test_few_queries(self):
        """Keys of few queries go in chunks, which a second launch merges from the same workspace."""
        kernel = pk.compile("attention", head_dim=64, targets="native,sm_80", dtypes=["bfloat16"])
        rows = lambda heads, tokens: torch.randn(1, heads, tokens, 64).bfloat16()  # noqa: E731
        with unittest.mock.patch("pegen_kernels.kernel.view", lambda name, x, *_: there(x)):
            for tokens, keys in ((1, 600), (1, 100), (40, 600)):  # few and many keys, many queries
                kernel.attention(rows(8, tokens), rows(2, keys), rows(2, keys), stream=77)
        names = [name.removeprefix("attention_attention_") for name, _ in self.launched]
        self.assertEqual(names, ["few_bf16_mma", "finish_bf16", "few_bf16_mma", "bf16_mma"])
        self.assertEqual(self.driver.stream, 77)

    def test_other_libraries(self):
        with self.assertRaisesRegex(pk.ArgumentError, "^workspace: memory of a GPU is only asked for of PyTorch"):
            arrays.room_beside(arrays.View(64, (arrays.CUDA, 0), object()), 8)

    def test_stream(self):
        """Operators queue on the current stream of their tensors' device."""
        x = unittest.mock.Mock(is_cuda=True, device="cuda:1")
        with unittest.mock.patch.object(torch.cuda, "current_stream") as current:
            current.return_value.cuda_stream = 9
            self.assertEqual(operators.stream_of(x), 9)
            current.assert_called_once_with("cuda:1")


if __name__ == "__main__":
    unittest.main()
