"""pegen_kernels.torch.patch: models of transformers and timm, with random weights, compute through pegen's kernels what
their own code computes."""
import copy
import inspect
import io
import pathlib
import sys
import unittest

import torch
import vision  # noqa: F401 (before timm and transformers)

import timm
import transformers as T
import transformers.models.qwen2_5_vl.modeling_qwen2_5_vl as qwen2_5_vl
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

import pegen_kernels as pk
from pegen_kernels.torch import patch, unpatch

sys.path.append(str(pathlib.Path(__file__).parents[2] / "examples"))
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
    def near(self, found, expected, bound=2.0**-18):
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
        for at in (shifted, shifted + 131000):  # where a phase that float32 rounds is 2^-8 off
            self.near(ours(self.ids, position_ids=at).logits, own(self.ids, position_ids=at).logits)

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
        hooks = dict(ours.model.rotary_emb._forward_hooks)
        self.assertIs(patch(ours, **FAST), ours)
        self.assertEqual(ours.model.rotary_emb._forward_hooks, hooks)
        with self.assertRaisesRegex(pk.ArgumentError, "^model: it has been patched before, with other options"):
            patch(ours, targets="x86-64-v2")
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
            type(model.model.rotary_emb).forward = lambda self, x, position_ids: [
                y**2 for y in original(self, x, position_ids)
            ]
            with self.assertRaisesRegex(pk.ArgumentError, "not known"):
                patch(model)
        finally:
            type(model.model.rotary_emb).forward = original
        self.assertFalse(model.model.rotary_emb._forward_hooks)

    @torch.no_grad()
    def test_wrapped(self):
        """A function that rotates may say nothing of its parameters."""
        import transformers.models.llama.modeling_llama as code

        own, before = llama(), code.apply_rotary_pos_emb
        models_own = getattr(before, "_of_pegen", before)  # other tests may have patched it
        try:
            code.apply_rotary_pos_emb = lambda *given, **named: models_own(*given, **named)
            self.near(*(model(self.ids).logits for model in pair(own)))
        finally:
            code.apply_rotary_pos_emb = before

    def test_own_forwards(self):
        """What stands in place of a module's forward is called as before, and stays."""
        model, calls = llama(), []
        attention, rope = model.model.layers[0].self_attn, model.model.rotary_emb

        def counted(own):
            def forward(*given, **named):
                calls.append(own)
                return own(*given, **named)

            return forward

        attention.forward, rope.forward = counted(attention.forward), counted(rope.forward)
        forwards = attention.forward, rope.forward
        for change in (lambda: None, lambda: patch(model, **FAST), lambda: unpatch(model)):
            change()
            calls.clear()
            model(self.ids)
            self.assertEqual(len(calls), 2)
            self.assertEqual((attention.forward, rope.forward), forwards)

    @torch.no_grad()
    def test_saved_whole(self):
        """A patched model that is saved whole is patched where it is read, in a process that has patched none."""
        import transformers.models.llama.modeling_llama as code

        ours, file = patch(llama(), **FAST), io.BytesIO()
        torch.save(ours, file)
        code.apply_rotary_pos_emb = code.apply_rotary_pos_emb._of_pegen
        file.seek(0)
        back = torch.load(file, weights_only=False)
        self.assertTrue(torch.equal(back(self.ids).logits, ours(self.ids).logits))
        self.assertEqual(len(back.model.rotary_emb._forward_hooks), 1)
        self.assertTrue(torch.equal(unpatch(back)(self.ids).logits, llama()(self.ids).logits))

    def test_refused(self):
        """Models of number types that no kernel has, or without values, are refused before anything is changed."""
        with self.assertRaisesRegex(pk.ArgumentError, "^model: .*self_attn.* q is of type (torch.)?float64"):
            patch(model := llama().double(), **FAST)
        self.assertFalse(model.model.rotary_emb._forward_hooks)
        with torch.device("meta"), self.assertRaisesRegex(pk.ArgumentError, "^model: it has parameters on the meta"):
            patch(llama(), **FAST)
        model = llama().train()
        self.assertTrue(all(module.training for module in patch(model, **FAST).modules()))


class Turning(torch.nn.Module):
    """An attention of nobody's, which turns its rows by Llama's function, or misuses its cosines."""

    def __init__(self, use=lambda cos, sin: (cos, sin), layers=1):
        super().__init__()
        config = llama().config
        self.rope, self.use = LlamaRotaryEmbedding(config), use
        self.layers = torch.nn.ModuleList(Turned(config) for _ in range(layers))

    def forward(self, thing, until=None):
        angles = self.use(*self.rope(thing, torch.arange(thing.shape[1])[None]))
        for layer in self.layers[:until]:
            thing = layer(thing, angles)
        return thing


class Turned(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = torch.nn.Linear(64, 64)

    def forward(self, thing, angles):
        rows = self.weight(thing).unflatten(-1, (4, 16)).transpose(1, 2)
        return thing + apply_rotary_pos_emb(rows, rows[:, :2], *angles)[0].transpose(1, 2).flatten(2)


class Cosines(Case):
    """Models that do with their cosines what patch does not look at."""

    def test_models(self):
        small = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
                 "pad_token_id": 0}  # fmt: skip
        latent = {**small, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16,
                  "qk_nope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 4, "moe_intermediate_size": 32,
                  "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}  # fmt: skip
        windows = {"depth": 2, "hidden_size": 64, "num_heads": 4, "intermediate_size": 96, "out_hidden_size": 64,
                   "window_size": 56, "fullatt_block_indexes": [1]}  # fmt: skip
        image = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
                 "image_size": 64, "patch_size": 16}  # fmt: skip
        picture = torch.randn(1, 3, 64, 64)
        words, grid = {"input_ids": torch.arange(3, 14)[None]}, torch.tensor([[1, 8, 12]])
        windows_of = qwen2_5_vl.Qwen2_5_VisionTransformerPretrainedModel
        for is_taken, make, given in (
            (True, lambda: T.DeepseekV2Model(T.DeepseekV2Config(**latent)), words),
            (True, lambda: T.DeepseekV3Model(T.DeepseekV3Config(**latent)), words),
            (True, lambda: T.DeepseekV3Model(T.DeepseekV3Config(**latent, rope_interleave=False)), words),
            (True, lambda: T.Glm4MoeLiteModel(T.Glm4MoeLiteConfig(**latent)), words),
            (False, lambda: windows_of(windows_of.config_class(**windows)),
             {"hidden_states": torch.randn(96, 1176), "grid_thw": grid}),
            (True, lambda: T.DINOv3ViTModel(T.DINOv3ViTConfig(**image, num_register_tokens=3)),
             {"pixel_values": picture}),
            (False, lambda: T.MLCDVisionModel(T.MLCDVisionConfig(**image)), {"pixel_values": picture}),
            (True, lambda: T.GraniteSWAModel(T.GraniteSWAConfig(**small)), words),
        ):  # fmt: skip
            torch.manual_seed(1)
            model = varied(make().eval())
            with self.subTest(type(model).__name__), torch.no_grad():
                own = model(**given)[0]
                if is_taken:
                    self.near(patch(model, **FAST)(**given)[0], own)
                    continue
                with self.assertRaisesRegex(pk.ArgumentError, "there for rotations alone; the model asks them for"):
                    patch(model, **FAST)
                self.assertTrue(torch.equal(model(**given)[0], own))

    @torch.no_grad()
    def test_operations(self):
        """Nothing can be done with angles but to rotate by them and to move them to a device."""
        where = torch.randn(1, 5, 64)
        for use in (
            lambda cos, sin: (cos[..., :], sin), lambda cos, sin: (cos * 1, sin), lambda cos, sin: (1 - cos, sin),
            lambda cos, sin: (torch.cat([cos, cos], 1)[:, :5], sin), lambda cos, sin: (cos, -sin),
            lambda cos, sin: (sin, cos),
            lambda cos, sin: (cos.unsqueeze(0)[0], sin), lambda cos, sin: (torch.ones(5, 16) * cos, sin),
            lambda cos, sin: (cos.to(torch.float16), sin), lambda cos, sin: (torch.roll(cos, 1), sin),
            lambda cos, sin: (cos, torch.zeros(1, 5, 16)), lambda cos, sin: (cos @ torch.eye(16), sin),
            lambda cos, sin: (list(cos)[0][None], sin), lambda cos, sin: (cos if len(cos) else sin, sin),
        ):  # fmt: skip
            with self.assertRaisesRegex(
                pk.ArgumentError, "^model: .*rope was patched, and its (cosines|sines) are there"
            ):
                patch(model := Turning(use), example=(where,), **FAST)
            self.assertFalse(model.rope._forward_hooks)
        moved = Turning(lambda cos, sin: (cos.to("cpu"), sin.to(torch.device("cpu"))))
        own = moved(where)
        self.near(patch(moved, example=(where,), **FAST)(where), own)
        self.assertFalse(hasattr(moved.rope(where, torch.arange(5)[None])[0], "shape"))

    def test_example(self):
        """What a model takes that says nothing of itself is the caller's to say."""
        where = torch.randn(1, 5, 64)
        with self.assertRaisesRegex(pk.ArgumentError, "^example: patch runs the model once, and does not know what"):
            patch(Turning(), **FAST)
        with self.assertRaisesRegex(pk.ArgumentError, "^example: Turning does not take it: "):
            patch(Turning(), example=(), **FAST)
        with self.assertRaisesRegex(
            pk.ArgumentError, "^example: layers.1 did not run; expected arguments of the model"
        ):
            patch(Turning(layers=2), example={"thing": where, "until": 1}, **FAST)
        model = Turning(layers=2)
        own = model(where)
        self.near(patch(model, example={"thing": where}, **FAST)(where).detach(), own.detach())


class Families(Case):
    """Whose functions rotate other channels together than their cosines say, or one tensor at a time, and whose layers
    have frequencies by their type."""

    SMALL = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "head_dim": 16,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0,
             "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8, "num_local_experts": 4,
             "num_experts_per_tok": 2, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 97,
             "global_head_dim": 32, "num_kv_shared_layers": 0, "attn_implementation": "eager"}  # fmt: skip
    TYPES = {"full_attention_inv_freq", "sliding_attention_inv_freq"}
    ONE = {"inv_freq"}

    def test_families(self):
        ids = torch.arange(3, 27).reshape(2, 12)
        far = torch.arange(12)[None].flip(-1) * 3
        for name, layout, frequencies in (
            ("Gemma3Text", "split", self.TYPES), ("Gemma4Text", "split", self.TYPES), ("Olmo3", "split", self.TYPES),
            ("ModernBert", "split", self.TYPES), ("Glm4", "interleaved", self.ONE), ("Helium", "interleaved", self.ONE),
            ("Ernie4_5", "interleaved", self.ONE), ("GptOss", "split", self.ONE), ("Cohere2", "interleaved", self.ONE),
            ("Llama4Text", "interleaved", self.ONE),
        ):  # fmt: skip
            config = getattr(T, f"{name}Config")
            signature = inspect.signature(config).parameters
            kept = {key: x for key, x in self.SMALL.items() if name.startswith("Gemma") or key in signature}
            if frequencies is self.ONE:
                kept.pop("layer_types", None)
            torch.manual_seed(1)
            own, ours = pair(varied(getattr(T, f"{name}Model")(config(**kept)).eval()))
            with self.subTest(name):
                hooks = [hook for x in ours.modules() for hook in x._forward_hooks.values()]
                (change,) = [hook for hook in hooks if hasattr(hook, "rules")]
                self.assertEqual((set(change.rules), {x for x, *_ in change.layouts.values()}), (frequencies, {layout}))
                made = [model(ids)[0] for model in (own, ours)]
                self.near(made[1].detach(), made[0].detach())
                self.near(ours(ids, position_ids=far)[0].detach(), own(ids, position_ids=far)[0].detach())
                self.far(ours(ids, position_ids=far)[0].detach(), made[1].detach())
                weights = torch.randn(made[0].shape, generator=torch.Generator().manual_seed(1))
                for x in made:
                    (x * weights).sum().backward()
                for (parameter, a), b in zip(own.named_parameters(), ours.parameters()):
                    if a.grad is not None and a.grad.abs().max() > 0:
                        self.near(b.grad, a.grad, 2.0**-10)


class Tables(Case):
    """GPT-J and CodeGen look cosines up, and turn pairs of the first channels, one tensor at a time."""

    def test_models(self):
        ids = torch.arange(3, 27)[None].expand(2, -1)
        far = torch.stack([torch.arange(24) + 90, torch.arange(24) * 4])
        for name, turned in (("GPTJ", 8), ("GPTJ", 16), ("CodeGen", 8)):
            sizes = {
                "vocab_size": 97,
                "n_embd": 64,
                "n_layer": 2,
                "n_head": 4,
                "n_positions": 128,
                "rotary_dim": turned,
            }
            torch.manual_seed(1)
            config = getattr(T, f"{name}Config")(**sizes)
            own, ours = pair(varied(T.AutoModelForCausalLM.from_config(config).eval()))
            with self.subTest(name, turned=turned):
                made = [model(ids, position_ids=far).logits for model in (own, ours)]
                self.near(made[1].detach(), made[0].detach())
                self.far(ours(ids).logits.detach(), made[1].detach())
                weights = torch.randn(made[0].shape, generator=torch.Generator().manual_seed(1))
                for x in made:
                    (x * weights).sum().backward()
                for a, b in zip(own.parameters(), ours.parameters()):
                    self.near(b.grad, a.grad, 2.0**-10)
                made = [m.generate(ids[:1, :9], max_new_tokens=12, do_sample=False) for m in (own, ours)]
                self.assertTrue(torch.equal(*made))
                self.assertTrue(torch.equal(unpatch(ours)(ids).logits, own(ids).logits))
                with self.assertRaisesRegex(pk.ArgumentError, "^precision: transformer.rotary_emb looks cosines up"):
                    patch(ours, precision="exact phases")
                own.transformer.rotary_emb.embed_positions += 0.5  # no cosines
                with self.assertRaisesRegex(pk.ArgumentError, "^model: what makes the angles of .*attn is not known"):
                    patch(own, **FAST)


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
        for name in ("vit_small_patch16_rope_224", "vit_small_patch16_rope_mixed_224", "eva02_tiny_patch14_224",
                     "vit_small_patch16_dinov3"):  # fmt: skip
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

    def test_sections(self):
        """Frequencies of rows, columns and time in turn, and learned positions beside them."""
        torch.manual_seed(1)
        sections = {"rope_type": "mrope", "rope_mrope_section": (8, 9, 12)}
        model = timm.create_model("eva02_tiny_patch14_224", depth=2, num_classes=10, img_size=(84, 56), **sections)
        own, ours = pair(varied(model.eval()))
        x = torch.randn(1, 3, 84, 56)
        self.near(ours(x).detach(), own(x).detach())
        own.rope.axis.fill_(1)
        self.assertGreater(float((ours(x) - own(x)).abs().max().detach()), 1e-3)

    def test_other_sizes(self):
        torch.manual_seed(1)
        model = timm.create_model("vit_small_patch16_rope_224", depth=2, num_classes=10, dynamic_img_size=True).eval()
        own, ours = pair(varied(model))
        x = torch.randn(1, 3, 64, 112)
        self.near(ours(x).detach(), own(x).detach())

    def test_of_ones_own(self):
        """examples/timm_vit.py: rows of a block are those of its own attention with encoded queries and keys."""
        import timm_vit

        for name, options in (("geope2d", {}), ("care", {"heads": 6})):
            torch.manual_seed(1)
            model = timm.create_model("vit_small_patch16_224", img_size=64, depth=2, num_classes=10, pos_embed="none")
            own = copy.deepcopy(varied(model))
            ours = timm_vit.use_pegen(model, name, **options, **FAST).eval()
            x = torch.randn(2, 3, 64, 64)
            self.far(ours(x).detach(), own.eval()(x).detach())
            ours(x).square().sum().backward()
            attention = ours.blocks[0].attn
            for parameter in attention.q_norm.encoding.parameters():
                self.assertGreater(float(parameter.grad.abs().max()), 0)
            rows, places = torch.randn(2, 17, 384), attention.q_norm.places
            self.assertEqual(places.tolist()[:3], [[0, 0], [0, 0], [0, 1]])
            q, k, v = attention.qkv(rows).view(2, 17, 3, 6, 64).permute(2, 0, 3, 1, 4)
            q, k = attention.q_norm.encoding(q, k, places)
            made = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 17, 384)
            self.near(attention(rows).detach(), attention.proj(made).detach())


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
