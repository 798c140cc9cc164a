"""pegen_kernels.torch.patch: models of transformers and timm, with random weights, compute through pegen's kernels what
their own code computes."""
import copy
import io
import unittest

import torch
import vision  # noqa: F401 (before timm and transformers)

import timm
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2VLConfig, Qwen2VLForConditionalGeneration

import pegen_kernels as pk
from pegen_kernels.torch import patch, unpatch

FAST = {"targets": "native", "dtypes": ["float32", "bfloat16"]}


def llama(**options):
    sizes = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}  # fmt: skip
    torch.manual_seed(1)
    return varied(LlamaForCausalLM(LlamaConfig(**{**sizes, **options})).eval())


def varied(model):
    """Weights that let positions be seen in what the model returns."""
    for name, parameter in model.named_parameters():
        if "freqs" not in name and parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
        elif "gamma" in name:
            torch.nn.init.ones_(parameter)
    return model


def pair(model):
    return model, patch(copy.deepcopy(model), **FAST)


class Case(unittest.TestCase):
    def near(self, found, expected, bound=2.0**-14):
        error = (found - expected).abs().max() / expected.abs().max()
        self.assertLess(float(error), bound)

    def far(self, found, expected):
        self.assertGreater(float((found - expected).abs().max() / expected.abs().max()), 0.05)


class Llama(Case):
    def setUp(self):
        torch.manual_seed(2)
        self.ids = torch.randint(0, 97, (2, 40))

    @torch.no_grad()
    def test_left_padding_cache_grouped_heads(self):
        own, ours = pair(llama())
        mask = torch.ones_like(self.ids[:, :9])
        mask[0, :4] = 0
        given = {"input_ids": self.ids[:, :9], "attention_mask": mask}
        self.near(ours(**given).logits[mask.bool()], own(**given).logits[mask.bool()])
        made = [model.generate(**given, max_new_tokens=24, do_sample=False) for model in (own, ours)]
        self.assertTrue(torch.equal(*made))
        shifted = torch.arange(40)[None] * 3  # positions are read at all
        self.far(ours(self.ids, position_ids=shifted).logits, ours(self.ids).logits)
        self.near(ours(self.ids, position_ids=shifted).logits, own(self.ids, position_ids=shifted).logits)

    @torch.no_grad()
    def test_rules_for_longer_contexts(self):
        for rule in ({"rope_type": "linear", "factor": 2.0}, {"rope_type": "dynamic", "factor": 2.0},
                     {"rope_type": "yarn", "factor": 4.0},
                     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 16}):  # fmt: skip
            with self.subTest(rule["rope_type"]):
                parameters = {"rope_theta": 500.0, **rule}
                own, ours = pair(llama(max_position_embeddings=16, rope_parameters=parameters))
                plain = llama(rope_parameters={"rope_type": "default", "rope_theta": 500.0})
                self.far(own(self.ids).logits, plain(self.ids).logits)
                for tokens in (9, 40, 12):  # what is dynamic follows the length, and returns
                    self.near(ours(self.ids[:, :tokens]).logits, own(self.ids[:, :tokens]).logits)

    def test_gradients(self):
        models = pair(llama())
        for model in models:
            model(self.ids, labels=self.ids).loss.backward()
        for (name, own), ours in zip(models[0].named_parameters(), models[1].parameters()):
            with self.subTest(name):
                self.near(ours.grad, own.grad, 2.0**-12)

    @torch.no_grad()
    def test_compiled(self):
        own, ours = pair(llama())
        compiled = torch.compile(ours.model, fullgraph=True)
        self.near(compiled(self.ids).last_hidden_state, own.model(self.ids).last_hidden_state)

    @torch.no_grad()
    def test_bfloat16(self):
        exact, (own, ours) = llama(), pair(llama().bfloat16())
        expected = exact(self.ids).logits
        rounded = ((own(self.ids).logits.float() - expected) ** 2).mean()
        self.assertLess(float(((ours(self.ids).logits.float() - expected) ** 2).mean()), 1.2 * float(rounded))

    @torch.no_grad()
    def test_back_and_forth(self):
        own, ours = pair(llama())
        self.assertEqual(list(own.state_dict()), list(ours.state_dict()))
        self.near(copy.deepcopy(ours)(self.ids).logits, own(self.ids).logits)
        file = io.BytesIO()
        torch.save(ours.state_dict(), file)
        file.seek(0)
        own.load_state_dict(torch.load(file))
        with self.assertRaisesRegex(pk.ArgumentError, "^model: it has been patched before"):
            patch(ours)
        self.assertTrue(torch.equal(unpatch(ours)(self.ids).logits, own(self.ids).logits))
        with self.assertRaisesRegex(pk.ArgumentError, "^model: Linear has no attention"):
            patch(torch.nn.Linear(2, 2))

    def test_unknown(self):
        """A rotation that the kernels would not reproduce is refused, and the model is as it was."""
        with self.assertRaisesRegex(pk.ArgumentError, "^model is a str; expected a torch.nn.Module"):
            patch("llama")
        model = llama()
        model.model.rotary_emb.inv_freq[3] *= 2  # a rule of its own: followed
        self.near(*(m(self.ids).logits.detach() for m in pair(model)))
        original = type(model.model.rotary_emb).forward
        try:
            type(model.model.rotary_emb).forward = lambda self, x, ids: [y**2 for y in original(self, x, ids)]
            with self.assertRaisesRegex(pk.ArgumentError, "not known"):
                patch(model)
        finally:
            type(model.model.rotary_emb).forward = original
        self.assertNotIn("forward", vars(model.model.rotary_emb))


class Qwen2VL(Case):
    @torch.no_grad()
    def test_images_in_text(self):
        torch.manual_seed(1)
        text = {"vocab_size": 120, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 1,
                "eos_token_id": 2, "pad_token_id": 0,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e3, "mrope_section": [2, 3, 3]}}  # fmt: skip
        image = {"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "patch_size": 4,
                 "spatial_merge_size": 2, "temporal_patch_size": 1, "in_channels": 3, "mlp_ratio": 2}  # fmt: skip
        model = Qwen2VLForConditionalGeneration(Qwen2VLConfig(
            text_config=text, vision_config=image, image_token_id=110, video_token_id=111, vision_start_token_id=112,
            vision_end_token_id=113)).eval()  # fmt: skip
        own, ours = pair(varied(model))
        ids = torch.tensor([[5, 6, 112] + [110] * 8 + [113, 7, 8, 9], [0] * 5 + [112] + [110] * 4 + [113, 7, 8, 9, 10]])
        mask = (ids != 0).long()
        given = {"input_ids": ids, "attention_mask": mask, "pixel_values": torch.randn(48, 48),
                 "image_grid_thw": torch.tensor([[1, 4, 8], [1, 4, 4]]),
                 "mm_token_type_ids": (ids == 110).int()}  # fmt: skip
        self.near(ours(**given).logits[mask.bool()], own(**given).logits[mask.bool()])
        turned = {**given, "image_grid_thw": torch.tensor([[1, 8, 4], [1, 4, 4]])}
        self.far(ours(**turned).logits[mask.bool()], ours(**given).logits[mask.bool()])
        made = [m.generate(**given, max_new_tokens=12, do_sample=False) for m in (own, ours)]
        self.assertTrue(torch.equal(*made))


class Images(Case):
    def test_axial_and_mixed(self):
        image = torch.randn(2, 3, 96, 64, generator=torch.Generator().manual_seed(3))
        for name in ("vit_small_patch16_rope_224", "vit_small_patch16_rope_mixed_224", "eva02_tiny_patch14_224"):
            with self.subTest(name):
                torch.manual_seed(1)
                size = 16 if "16" in name else 14
                model = timm.create_model(name, img_size=(6 * size, 4 * size), depth=2, num_classes=10).eval()
                own, ours = pair(varied(model))
                x = image[..., : 6 * size, : 4 * size]
                self.near(ours(x).detach(), own(x).detach())
                without = copy.deepcopy(own)
                without.rope = None
                without.rope_mixed = False
                self.assertGreater(float(((without(x) - own(x)).abs().max() / own(x).abs().max()).detach()), 2.0**-9)
                self.assertEqual(list(own.state_dict()), list(ours.state_dict()))
                for m in (own, ours):
                    m(x).square().sum().backward()
                for (parameter, a), b in zip(own.named_parameters(), ours.parameters()):
                    if a.grad is not None:
                        self.near(b.grad, a.grad, 2.0**-10)
                        self.assertGreater(float(a.grad.abs().max()), 0, parameter)
                other = copy.deepcopy(ours)  # has frequencies of its own
                if "mixed" in name:
                    torch.nn.init.zeros_(other.rope.freqs)
                    self.near(other(x).detach(), without(x).detach())
                    self.near(ours(x).detach(), own(x).detach())

    def test_other_sizes(self):
        torch.manual_seed(1)
        model = timm.create_model("vit_small_patch16_rope_224", depth=2, num_classes=10, dynamic_img_size=True).eval()
        own, ours = pair(varied(model))
        x = torch.randn(1, 3, 64, 112)
        self.near(ours(x).detach(), own(x).detach())


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
