"""attn_implementation="pegen": models of transformers, with random weights, compute what they compute by their own
attention."""
import copy
import unittest
from unittest import mock

import small_models as small
import torch

from transformers import masking_utils as theirs
from transformers.integrations.sdpa_attention import sdpa_attention_forward

import pegen_kernels as pk
from pegen_kernels.torch import register_attention, transformers_attention

register_attention(targets="native", dtypes="float32")
OWN_MASKS = ("Doge", "DeepseekV32", "PixtralVision")  # which models' own code makes or reads
CACHED = ("Llama", "Mistral", "Gemma2", "GptOss", "Llama4Text", "DeepseekV3", "Doge", "DeepseekV32")


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

    def test_models(self):
        """Rows and gradients, of tokens with and without padding; by the kernel, but where the mask is the model's."""
        for name in small.CLASSES:
            with self.subTest(name):
                own = small.made(name)
                ours, given, seen, made = ours_of(own), small.given(name), ..., []
                if name not in small.OTHERS:
                    given, seen = {"input_ids": self.ids, "attention_mask": self.padding}, self.padding.bool()
                with mock.patch.object(
                    transformers_attention, "attend", side_effect=transformers_attention.attend
                ) as by:
                    for model in (own, ours):
                        whole = model(**{word: x for word, x in given.items() if word != "attention_mask"})[0].detach()
                        rows = model(**given)[0][seen]
                        small.weighted(rows).backward()
                        made.append((whole, rows.detach(), small.gradients(model)))
                layers = sum("Attention" in type(module).__name__ for module in ours.modules())
                self.assertGreaterEqual(by.call_count, 0 if name in OWN_MASKS else layers)
                for expected, found in zip(*made):
                    if isinstance(found, dict):
                        self.assertLess(small.apart(found, expected), 2.0**-12)
                    else:
                        self.near(found, expected)
        print(f"transformers_test: {len(small.CLASSES)} classes compute and are trained as by their own attention")

    @torch.no_grad()
    def test_cached(self):
        """Token by token out of a cache, where caches differ."""
        for name in CACHED:
            with self.subTest(name):
                own = small.made(name)
                told = {"input_ids": self.ids, "attention_mask": self.padding, "max_new_tokens": 4, "do_sample": False,
                        "output_logits": True, "return_dict_in_generate": True}  # fmt: skip
                self.near(*(torch.stack(model.generate(**told).logits) for model in (ours_of(own), own)))

    def test_training(self):
        for name in ("Llama", "Mistral", "Gemma2", "GptOss", "DeepseekV3"):
            own = small.made(name).train()
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
                own = small.made(name)
                given = {"input_ids": self.ids[:1], "position_ids": places}
                if name not in small.ENCODERS:
                    given["use_cache"] = False
                self.near(ours_of(own)(**given)[0], own(**given)[0])

    @torch.no_grad()
    def test_static_cache(self):
        own = small.made("Llama")
        told = {"input_ids": self.ids, "attention_mask": self.padding, "max_new_tokens": 4, "do_sample": False,
                "cache_implementation": "static", "output_logits": True, "return_dict_in_generate": True,
                "disable_compile": True}  # fmt: skip
        self.near(*(torch.stack(model.generate(**told).logits) for model in (ours_of(own), own)))

    @torch.no_grad()
    def test_compiled(self):
        own = small.made("Mistral")
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
