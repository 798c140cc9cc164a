"""patch(model, like_model=True): outputs and gradients are those of the model's own code to the bit, in bfloat16,
float16 and float32. Cosines and sines are the model's own, products are rounded as its own code rounds them."""
import copy
import unittest

import small_models as small
import torch
import vision  # noqa: F401 (before timm and transformers)

import timm
import transformers as T

import pegen_kernels as pk
from pegen_kernels.torch import patch, unpatch

FAST = {"targets": "native", "dtypes": ["float32", "bfloat16", "float16"], "like_model": True}
WITHOUT = ("GPT2", "OPT", "GPTBigCode")  # which do not rotate
IMAGES = ("vit_small_patch16_rope_224", "vit_small_patch16_rope_mixed_224", "eva02_tiny_patch14_224",
          "vit_small_patch16_dinov3")  # fmt: skip


class LikeModel(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        self.ids = torch.randint(3, 97, (2, 24))

    def same(self, own, ours, given):
        self.assertTrue(torch.equal(ours(**given)[0], own(**given)[0]))

    def models(self):
        for name in (*small.CAUSAL, *small.ROTATING, "ModernBert"):
            if name not in WITHOUT:
                yield name, small.made(name), {"input_ids": self.ids}
        image = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
                 "image_size": 64, "patch_size": 16, "num_register_tokens": 3}  # fmt: skip
        torch.manual_seed(1)
        yield "DINOv3", T.DINOv3ViTModel(T.DINOv3ViTConfig(**image)).eval(), {"pixel_values": torch.randn(1, 3, 64, 64)}
        for name in IMAGES:
            size = 16 if "16" in name else 14
            model = timm.create_model(name, img_size=(6 * size, 4 * size), depth=2, num_classes=10).eval()
            yield name, model, {"x": torch.randn(2, 3, 6 * size, 4 * size)}

    @torch.no_grad()
    def test_bfloat16(self):
        count = 0
        for name, model, given in self.models():
            with self.subTest(name):
                own = model.bfloat16()
                given = {key: x.bfloat16() if x.is_floating_point() else x for key, x in given.items()}
                self.same(own, patch(copy.deepcopy(own), **FAST), given)
                count += 1
        self.assertGreaterEqual(count, 50)
        print(f"like_model_test: {count} models are their own code's to the bit in bfloat16")

    def test_types_and_gradients(self):
        """Far positions, gradients of all parameters; a patch without it differs in 16 bits."""
        far = {"input_ids": self.ids, "position_ids": torch.arange(24)[None].expand(2, -1) * 3801}
        for name in ("Llama", "Olmo2", "Cohere"):
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                with self.subTest(name, dtype=dtype):
                    own = small.made(name).to(dtype)
                    ours, plain = (patch(copy.deepcopy(own), **x) for x in (FAST, {**FAST, "like_model": False}))
                    self.same(own, ours, far)
                    for model in (own, ours):
                        model(**far)[0].float().square().mean().backward()
                    for (parameter, a), b in zip(own.named_parameters(), ours.parameters()):
                        if name == "Olmo2":  # multiplies 16 bits by float32, whose gradients round otherwise
                            self.assertLess(float((a.grad - b.grad).abs().max()), 2.0**-5 * float(a.grad.abs().max()))
                        else:
                            self.assertTrue(torch.equal(a.grad, b.grad), parameter)
                    if dtype != torch.float32 and name == "Llama":
                        self.assertFalse(torch.equal(plain(**far)[0], own(**far)[0]))
                    self.same(own, unpatch(ours), far)

    @torch.no_grad()
    def test_cached(self):
        """Token by token out of a cache."""
        own = small.made("Llama").bfloat16()
        ours = patch(copy.deepcopy(own), **FAST)
        told = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        a, b = (torch.stack(model.generate(self.ids, **told).logits) for model in (own, ours))
        self.assertTrue(torch.equal(a, b))

    @torch.no_grad()
    def test_widened(self):
        """16-bit rows that float32 cosines turn into float32 rows."""
        own = small.made("CodeGen")
        table = own.transformer.rotary_emb.embed_positions
        own.bfloat16().transformer.rotary_emb.embed_positions = table
        ours = patch(copy.deepcopy(own), **FAST)
        found = [how for *_, how in ours.transformer.rotary_emb._forward_hooks.popitem()[1].layouts.values()]
        self.assertEqual(found, [("rounded", False, True)])
        ours = patch(copy.deepcopy(own), **FAST)
        self.same(own, ours, {"input_ids": self.ids})
        self.assertEqual(next(ours.parameters()).dtype, torch.bfloat16)

    def test_refused(self):
        model = small.made("Llama")
        with self.assertRaisesRegex(pk.ArgumentError, "like_model=True takes the model's own cosines"):
            patch(model, like_model=True, precision="exact phases")
        from transformers.models.llama import modeling_llama

        own = modeling_llama.apply_rotary_pos_emb
        try:
            modeling_llama.apply_rotary_pos_emb = lambda q, k, cos, sin, unsqueeze_dim=1: tuple(
                (x.double() * cos[:, None] + modeling_llama.rotate_half(x).double() * sin[:, None]).to(x.dtype)
                for x in (q, k)
            )
            with self.assertRaisesRegex(pk.ArgumentError, "or rounds them, in a way that is not known"):
                patch(model, **FAST)
        finally:
            modeling_llama.apply_rotary_pos_emb = own


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
