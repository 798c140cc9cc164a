"""attn_implementation="pegen": models of transformers, with random weights, compute what they compute by their own
attention."""
import copy
import unittest

import torch
import vision  # noqa: F401 (before transformers)

import transformers as T
from transformers import masking_utils as theirs
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import pegen_kernels as pk
from pegen_kernels.torch import register_attention, transformers_attention

register_attention(targets="native", dtypes="float32")
SIZES = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
WINDOW = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}
CAUSAL = {  # configuration: what differs from SIZES
    "Llama": {}, "Mistral": WINDOW, "Qwen2": WINDOW, "Qwen3": WINDOW, "Gemma": {}, "Phi3": WINDOW,
    "Olmo2": {}, "Olmo3": WINDOW,
    "Gemma2": {**WINDOW, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0},
    "Gemma3Text": {**WINDOW, "query_pre_attn_scalar": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "GptOss": {**WINDOW, "num_local_experts": 2, "num_experts_per_tok": 1,
               "layer_types": ["sliding_attention", "full_attention"]},
    "Cohere": {}, "Cohere2": WINDOW, "Granite": {}, "Glm": {}, "Glm4": {}, "StableLm": {}, "Starcoder2": WINDOW,
    "Helium": {}, "SmolLM3": {}, "Exaone4": WINDOW, "Ernie4_5": {}, "Arcee": {}, "Nemotron": {}, "GPTNeoX": {},
    "Phi": {}, "Olmo": {}, "HunYuanDenseV1": {}, "SeedOss": {}, "Apertus": {}, "Mixtral": {"num_local_experts": 2},
    "Qwen3Moe": {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32},
    "Olmoe": {"num_experts": 2, "num_experts_per_tok": 1},
    "GPT2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "OPT": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "GPTBigCode": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "Llama4Text": {"attention_chunk_size": 8, "intermediate_size_mlp": 96, "num_local_experts": 2,
                   "layer_types": ["chunked_attention", "full_attention"]},
    "DeepseekV3": {"q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                   "v_head_dim": 12, "n_routed_experts": 2, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1,
                   "num_key_value_heads": 4, "head_dim": 8},
    # whose own code reads the mask
    "Doge": {"keep_window_size": 8},
    "DeepseekV32": {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                    "v_head_dim": 12, "n_routed_experts": 2, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1,
                    "num_key_value_heads": 4, "moe_intermediate_size": 32, "index_topk": 8, "index_head_dim": 16,
                    "index_n_heads": 2},
}  # fmt: skip
EAGER = ("Gemma2", "GptOss")  # softcap, sinks: sdpa has neither
CACHED = ("Llama", "Mistral", "Gemma2", "GptOss", "Llama4Text", "DeepseekV3", "Doge", "DeepseekV32")
ENCODERS = {
    "Bert": {}, "Roberta": {}, "DistilBert": {"dim": 64, "n_heads": 4, "n_layers": 2, "hidden_dim": 96}, "Electra": {},
    "ModernBert": {"local_attention": 8, "global_attn_every_n_layers": 2},
}  # fmt: skip


def made(base, options, of):
    config = getattr(T, f"{base}Config")(**{**SIZES, **options})
    torch.manual_seed(1)
    model = of.from_config(config, attn_implementation="eager" if base in EAGER else "sdpa").eval()
    for name, x in model.named_parameters():
        if x.ndim > 1:
            torch.nn.init.normal_(x, std=2 * x.shape[-1] ** -0.5)  # of which attention is far from even
    return model


def ours_of(model):
    model = copy.deepcopy(model)
    model.set_attn_implementation("pegen")
    return model


class Case(unittest.TestCase):
    def near(self, found, expected, bound=2.0**-13):
        self.assertLess(float((found - expected).abs().max() / expected.abs().max()), bound)


class Models(Case):
    def setUp(self):
        torch.manual_seed(2)
        self.ids = torch.randint(3, 97, (2, 24))
        self.padding = torch.ones_like(self.ids)
        self.padding[0, :5] = 0

    def assert_same(self, own, ours):
        """With and without padding; returns the padded call's arguments."""
        self.near(ours(self.ids)[0], own(self.ids)[0])
        given, seen = {"input_ids": self.ids, "attention_mask": self.padding}, self.padding.bool()
        self.near(ours(**given)[0][seen], own(**given)[0][seen])
        return given

    @torch.no_grad()
    def test_causal(self):
        """With and without padding; token by token out of a cache, where caches differ."""
        for name, options in CAUSAL.items():
            with self.subTest(name):
                own = made(name, options, T.AutoModelForCausalLM)
                ours = ours_of(own)
                given = self.assert_same(own, ours)
                if name not in CACHED:
                    continue
                told = {**given, "max_new_tokens": 4, "do_sample": False, "output_logits": True,
                        "return_dict_in_generate": True}  # fmt: skip
                made_by = [torch.stack(model.generate(**told).logits) for model in (ours, own)]
                self.near(*made_by)

    @torch.no_grad()
    def test_encoders(self):
        for name, options in ENCODERS.items():
            with self.subTest(name):
                own = made(name, options, T.AutoModel)
                self.assert_same(own, ours_of(own))

    def test_gradients(self):
        for name in ("Llama", "Mistral", "Gemma2", "GptOss", "DeepseekV3"):
            own = made(name, CAUSAL[name], T.AutoModelForCausalLM).train()
            models = own, ours_of(own)
            for model in models:
                labels = self.ids.masked_fill(self.padding.roll(1, 1) == 0, -100)  # what padding predicts is anything
                model(self.ids, attention_mask=self.padding, labels=labels).loss.backward()
            for (parameter, x), y in zip(own.named_parameters(), models[1].parameters()):
                with self.subTest(name, parameter=parameter):
                    if x.grad is not None and float(x.grad.abs().max()) > 0:
                        self.near(y.grad, x.grad, 2.0**-10)

    @torch.no_grad()
    def test_packed(self):
        """Sequences that follow each other, told apart by their positions."""
        places = torch.cat([torch.arange(n) for n in (9, 4, 11)])[None]
        for name in ("Llama", "Mistral", "Llama4Text", "ModernBert"):
            with self.subTest(name):
                kind, options = (T.AutoModel, ENCODERS) if name in ENCODERS else (T.AutoModelForCausalLM, CAUSAL)
                own = made(name, options[name], kind)
                given = {"input_ids": self.ids[:1], "position_ids": places}
                if kind is T.AutoModelForCausalLM:
                    given["use_cache"] = False
                self.near(ours_of(own)(**given)[0], own(**given)[0])

    @torch.no_grad()
    def test_static_cache(self):
        own = made("Llama", {}, T.AutoModelForCausalLM)
        told = {"input_ids": self.ids, "attention_mask": self.padding, "max_new_tokens": 4, "do_sample": False,
                "cache_implementation": "static", "output_logits": True, "return_dict_in_generate": True,
                "disable_compile": True}  # fmt: skip
        self.near(*(torch.stack(model.generate(**told).logits) for model in (ours_of(own), own)))

    @torch.no_grad()
    def test_compiled(self):
        own = made("Mistral", WINDOW, T.AutoModelForCausalLM)
        compiled = torch.compile(ours_of(own).model)
        self.near(compiled(self.ids, use_cache=False)[0], own.model(self.ids, use_cache=False)[0])


class Masks(Case):
    """Masks as transformers makes them, against the same as N × M."""

    def of(self, mask, q_length, kv_length, q_offset=0, kv_offset=0, attention_mask=None, **rest):
        given = (2, q_length, kv_length, q_offset, kv_offset, mask, attention_mask)
        expected = theirs.sdpa_mask(*given, allow_is_causal_skip=False)
        module = torch.nn.Module()
        module.is_causal, module.num_key_value_groups = mask is not theirs.bidirectional_mask_function, 2
        q = torch.randn(2, q_length, 4, 16).transpose(1, 2)
        k, v = (torch.randn(2, kv_length, 2, 16).transpose(1, 2) for _ in range(2))
        found = transformers_attention._mask(*given)
        ours = transformers_attention._attention(module, q, k, v, found)[0]
        own = sdpa_attention_forward(module, q, k, v, expected)[0]
        seen = expected.any(-1)[:, 0]
        self.near(ours[seen], own[seen])
        self.assertFalse(ours[~seen].any() or ours.isnan().any())
        return found

    def test_known(self):
        causal, window = theirs.causal_mask_function, theirs.sliding_window_causal_mask_function
        padding = torch.ones(2, 70, dtype=torch.bool)
        padding[0, :13] = padding[1, 60:] = False
        left = torch.tensor([13, 0])
        masks = [causal, theirs.bidirectional_mask_function, window(9), window(100)]
        masks += [theirs.chunked_causal_mask_function(7, left), theirs.sliding_window_bidirectional_mask_function(6)]
        for mask in masks:
            for sizes in ((70, 70), (1, 70, 69), (5, 70, 65), (20, 70, 0), (1, 40, 69, 30)):
                for given in (None, padding):
                    with self.subTest(mask.__qualname__, sizes=sizes, padded=given is not None):
                        found = self.of(mask, *sizes, attention_mask=given)
                        self.assertTrue(found is None or found.dtype == torch.int32)

    def test_none_where_the_call_says_it(self):
        causal, whole = theirs.causal_mask_function, torch.ones(2, 40, dtype=torch.bool)
        window = theirs.sliding_window_causal_mask_function
        for mask, sizes, is_none in ((causal, (40, 40), True), (causal, (1, 40, 39), True),
                                     (causal, (20, 40, 0), False), (window(40), (40, 40), True),
                                     (window(39), (40, 40), False),
                                     (theirs.bidirectional_mask_function, (30, 40), True)):  # fmt: skip
            self.assertEqual(self.of(mask, *sizes, attention_mask=whole) is None, is_none)

    def test_read_by_the_model(self):
        """A mask that may not be left out is one of booleans, but where transformers itself forbids that."""
        causal, whole = theirs.causal_mask_function, theirs.bidirectional_mask_function
        sequences = torch.zeros(2, 6, dtype=torch.int64)
        remapped = theirs.remap_positions_for_packed_sequence(causal, torch.arange(6).expand(2, -1))
        packed = theirs.and_masks(theirs.packed_sequence_mask_function(sequences), remapped)
        padding = torch.ones(2, 6, dtype=torch.bool)
        padding[0, :2] = False
        window = theirs.sliding_window_causal_mask_function(3)
        cases = [(x, (6, 6, 0, 0), given, torch.bool) for x in (causal, window, whole) for given in (None, padding)]
        cases += [(causal, (1, 6, 5, 0), padding, torch.bool), (causal, (1, 6, torch.tensor(5), 0), None, torch.int32)]
        cases += [
            (x, (6, 6, 0, 0), None, torch.int32) for x in (packed, theirs.packed_sequence_mask_function(sequences))
        ]
        for mask, sizes, given, dtype in cases:
            told = (2, *sizes, mask, given)
            found = transformers_attention._mask(*told, allow_is_causal_skip=False)
            self.assertEqual(found.dtype, dtype)
            if dtype == torch.bool:
                self.assertTrue(torch.equal(found, theirs.sdpa_mask(*told, allow_is_causal_skip=False)))
        self.assertIsNone(transformers_attention._mask(2, 6, 6, mask_function=whole, allow_is_causal_skip=False,
                                                       allow_is_bidirectional_skip=True))  # fmt: skip

    def test_unknown(self):
        """Masks of the caller's own are theirs, and what sdpa lacks is refused beside them."""
        blocks = torch.arange(40)[None].expand(2, -1) // 10
        found = self.of(theirs.or_masks(theirs.causal_mask_function, theirs.blockwise_overlay(blocks)), 40, 40)
        self.assertEqual(found.shape, (2, 1, 40, 40))
        x = torch.zeros(2, 4, 40, 16)
        for name in ("softcap", "sinks", "block_indices"):
            with self.assertRaisesRegex(pk.ArgumentError, f"^{name}: .*; expected attn_implementation='eager'"):
                transformers_attention._attention(torch.nn.Module(), x, x, x, found, **{name: torch.tensor(5.0)})

    def test_sinks(self):
        """The description `gpt_oss` against the model's own attention, with what the sinks gain."""
        from transformers.models.gpt_oss import modeling_gpt_oss as own

        for window in (0, 5):
            torch.manual_seed(3)
            ours = pk.torch.Attention("gpt_oss", head_dim=16, heads=4, window=window, causal=True, targets="native")
            torch.nn.init.normal_(ours.sinks, std=2)
            layer = torch.nn.Module()
            layer.num_key_value_groups, layer.training = 2, False
            layer.sinks = torch.nn.Parameter(ours.sinks.detach().clone())
            sizes = ((2, 4, 13, 16), (2, 2, 13, 16), (2, 2, 13, 16))
            rows = [torch.randn(size, requires_grad=True) for size in sizes]
            lag = torch.arange(13)[:, None] - torch.arange(13)
            mask = torch.where((lag < 0) | (lag >= (window or 13)), -torch.inf, 0.0)[None, None]
            expected = own.eager_attention_forward(layer, *rows, mask, scaling=0.25)[0].transpose(1, 2)
            found, g = ours(*rows), torch.randn(2, 4, 13, 16)
            self.near(found, expected, 2.0**-18)
            pairs = zip(*(torch.autograd.grad(x, [*rows, of.sinks], g) for x, of in ((found, ours), (expected, layer))))
            for gained, by_theirs in pairs:
                self.near(gained, by_theirs, 2.0**-18)

    def test_dropout(self):
        """By transformers' own attention, behind the same mask."""
        torch.manual_seed(1)
        x, module = torch.randn(1, 2, 12, 16), torch.nn.Module()
        mask = transformers_attention._mask(1, 12, 12, 0, 0, theirs.sliding_window_causal_mask_function(3))
        made = [transformers_attention._attention(module, x, x, x, mask, dropout=p)[0] for p in (0.0, 1e-9)]
        self.near(*made)


if __name__ == "__main__":
    unittest.main()
