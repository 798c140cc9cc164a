"""scripts/hub: the folder that it writes, loaded by get_local_kernel of Hugging Face's `kernels`, computes what
pegen_kernels does; its names are its own, and what it holds needs glibc 2.28 alone."""
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"
import kernels
import torch
from kernels._rust import Build, Metadata

import pegen_kernels as pk
from pegen_kernels.torch import Attention, Encoding, layers

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDS = ROOT / "tests" / "static" / "needs.sh"
FAST = {"targets": "native", "dtypes": "float32"}
ENCODINGS = ("rope", "rope_axial", "rope_mixed", "geope2d", "geope3d", "liere", "comrope_ld", "care", "quatro",
             "spherical")  # fmt: skip
ATTENTIONS = {"attention": {}, "alibi": {"heads": 4}, "pape": {"role": "pairwise"}}
ALONE = """
import pathlib, sys, kernels, torch
kernel = kernels.get_local_kernel(pathlib.Path(sys.argv[1]))
q, k = kernel.rope(torch.ones(1, 4, 3, 16), torch.ones(1, 2, 3, 16), torch.arange(3.0)[:, None])
assert "pegen_kernels" not in sys.modules and q.shape == (1, 4, 3, 16) and k.shape == (1, 2, 3, 16)
"""


def drawn(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def places(module):
    return torch.arange(7.0)[:, None].expand(7, len(module.kernel.axes)).contiguous()


class Hub(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name, "pegen")
        words = [ROOT / "scripts" / "hub", cls.folder, "--cmake", cls.folder.parent / "libraries", "--targets",
                 "native,sm_80", "--dtypes", "float32", "--head-dims", "16", "--heads", "4"]  # fmt: skip
        subprocess.run([sys.executable, *map(str, words)], check=True)
        cls.kernel = kernels.get_local_kernel(cls.folder)
        cls.variants = sorted((cls.folder / "build").iterdir())
        cls.told = {path.name: json.loads((path / "metadata.json").read_text()) for path in cls.variants}

    def same(self, found, expected, of):
        """Results, and gradients of what they were made of."""
        for x, y in zip(found, expected):
            self.assertTrue(torch.equal(x, y))
        gains = [torch.autograd.grad(sum(x.square().sum() for x in made), of, allow_unused=True)
                 for made in (found, expected)]  # fmt: skip
        for x, y in zip(*gains):
            self.assertTrue(x is y is None or torch.equal(x, y))

    def test_encodings(self):
        q, k = drawn(2, 4, 7, 16), drawn(2, 2, 7, 16, seed=2)
        for name in ENCODINGS:
            with self.subTest(name):
                module = Encoding(name, head_dim=16, **FAST)
                operands = dict(module.named_parameters())
                function = getattr(self.kernel, name)
                found = function(q, k, places(module), *operands.values())
                self.same(found, module(q, k, places(module)), (q, k, *operands.values()))
                self.assertTrue(torch.equal(function(q, None, places(module), **operands), found[0]))

    def test_attentions(self):
        q, k, v = (drawn(2, 4, 7, 16, seed=seed) for seed in (1, 2, 3))
        for name, options in ATTENTIONS.items():
            with self.subTest(name):
                module = Attention(name, head_dim=16, causal=True, **options, **FAST)
                inputs = [drawn(2, 4, 7, x.size, seed=4) for x in module.kernel.inputs]
                rest = [*module.parameters(), *inputs]
                found = getattr(self.kernel, name)(q, k, v, places(module), *rest, causal=True)
                self.same([found], [module(q, k, v, places(module), inputs=inputs)], (q, k, v, *rest))

    def test_layer(self):
        """The folder's layer takes the place of a function, as kernels puts it there."""

        @kernels.use_kernel_forward_from_hub("rotary_pos_emb")
        def rotation(q, k, cos, sin, unsqueeze_dim=1):
            return layers._by_halves(q, k, cos, sin, unsqueeze_dim)

        @kernels.use_kernelized_func(rotation)
        class Model(torch.nn.Module):
            def forward(self, *given):
                return rotation(*given)

        q, k = drawn(2, 4, 7, 16), drawn(2, 2, 7, 16, seed=2)
        angles = torch.arange(7.0)[None, :, None] * torch.rand(8).repeat(2)
        given, model = (q, k, angles.cos(), angles.sin()), Model()
        own = model(*given)
        mapping = {"rotary_pos_emb": {"cpu": kernels.LocalLayerRepository(self.folder, layer_name="RotaryPosEmb")}}
        with kernels.use_kernel_mapping(mapping):
            kernels.kernelize(model, mode=kernels.Mode.TRAINING, device="cpu")
        ours = self.kernel.layers
        with mock.patch.object(ours, "_turn", side_effect=ours._turn) as turned:
            for x, y in zip(model(*given), own):
                self.assertTrue(torch.equal(x, y))
        self.assertEqual(turned.call_count, 2)  # tried, and done
        self.same(model(*given), pk.torch.RotaryPosEmb()(*given), (q, k))

    def test_compiled(self):
        kernel, at = self.kernel, torch.arange(7.0)[:, None]
        compiled = torch.compile(lambda q, k: kernel.rope(q, k, at), fullgraph=True, backend="aot_eager")
        rows = drawn(2, 4, 7, 16), drawn(2, 4, 7, 16, seed=2)
        self.same(compiled(*rows), kernel.rope(*rows, at), rows)

    def test_refused(self):
        q, at = drawn(2, 4, 7, 24), torch.arange(7.0)[:, None]
        with self.assertRaisesRegex(self.kernel.ArgumentError, "q has 4 heads of 24 channels; rope is here for"):
            self.kernel.rope(q, q, at)
        q = q[..., :16]
        with self.assertRaisesRegex(self.kernel.ArgumentError, "q has 3 heads of 16 channels; alibi is .*'heads': 4"):
            self.kernel.alibi(q[:, :3], q[:, :3], q[:, :3], at)
        with self.assertRaisesRegex(self.kernel.ArgumentError, "rope_mixed takes freqs; 0 of these and frequ were"):
            self.kernel.rope_mixed(q, q, at.expand(7, 2), frequ=at)
        with self.assertRaisesRegex(self.kernel.ArgumentError, "^positions"):
            self.kernel.rope(q, q, at[:3])

    def test_foreign(self):
        """Nothing of a folder that is another's is removed."""
        with tempfile.TemporaryDirectory() as folder:
            (other := pathlib.Path(folder, "build.toml")).touch()
            made = subprocess.run([sys.executable, ROOT / "scripts" / "hub", folder], capture_output=True)
            self.assertIn(b"was not written by this script", made.stderr)
            self.assertTrue(made.returncode == 1 and other.exists())

    def test_alone(self):
        """In a process that has neither pegen_kernels nor the compiler."""
        at = [os.fspath(pathlib.Path(module.__file__).parents[1]) for module in (kernels, torch)]
        bare = {key: value for key, value in os.environ.items() if not key.startswith(("PEGEN", "PYTHONPATH"))}
        bare["PYTHONPATH"] = os.pathsep.join(at)
        subprocess.run([sys.executable, "-c", ALONE, self.folder], check=True, env=bare, cwd=self.scratch.name)

    def test_names(self):
        """Modules and operators have names of a variant of a build; older versions of kernels find them, too."""
        names = [told["id"] for told in self.told.values()]
        self.assertEqual(len({*names}), 3)
        name = next(told["id"] for variant, told in self.told.items() if "cpu" in variant)
        self.assertEqual(self.kernel.__name__, name)
        self.assertTrue(hasattr(getattr(torch.ops, name), "encode"))
        self.assertEqual(sys.modules[f"{name}.torch.extension"].reason, "")
        spaces = {x.partition("::")[0] for x in torch._C._dispatch_get_all_op_names() if "pegen" in x}
        self.assertEqual(spaces, {"pegen_kernels", name})
        older = {"__file__": os.fspath(self.cpu / "pegen" / "__init__.py")}
        exec((self.cpu / "pegen" / "__init__.py").read_text(), older)
        self.assertIs(older["rope"], self.kernel.rope)

    @property
    def cpu(self):
        return next(path for path in self.variants if "-cpu-" in path.name)

    def test_layout(self):
        Build.open(self.folder)
        machine = platform.machine()
        expected = [f"torch-stable-abi210-{backend}-{machine}-linux" for backend in ("cpu", "cu120", "cu130")]
        self.assertEqual([path.name for path in self.variants], expected)
        for path in self.variants:
            told = Metadata.read_from_file(path / "metadata.json")
            self.assertEqual(told.id, self.told[path.name]["id"])
            self.assertEqual({*self.told[path.name]["digest"]["files"]} | {"metadata.json"},
                             {str(x.relative_to(path)) for x in path.rglob("*") if x.is_file()})  # fmt: skip
        self.assertEqual(self.told[expected[1]]["backend"], {"type": "cuda", "archs": ["8.0+PTX"]})
        self.assertEqual({*ENCODINGS, *ATTENTIONS} - {*self.kernel.__all__}, set())

    def test_objects(self):
        for path in self.variants:
            libraries, objects = (sorted((path / name).iterdir()) for name in ("lib", "objects"))
            self.assertEqual((len(libraries), len(objects)), (2, 15))
            subprocess.run([NEEDS, *libraries], check=True)
            for file in objects:
                read = subprocess.run(["readelf", "-dW", "--dyn-syms", file], check=True, capture_output=True)
                self.assertNotRegex(read.stdout.decode(), r"NEEDED| UND +[a-zA-Z_]")
                self.assertEqual(pk.load(file).chip, "sm_80")


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
