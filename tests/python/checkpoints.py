"""Models of transformers and timm with random weights, and how far the kernels of their commands are from their own
code: what checkpoints_test.py measures.

The options of a command are those that the description says that the model uses (its `models`): what is tested is them.
"""
import functools
import json
import math
import pathlib
import subprocess
import types
from typing import Callable, NamedTuple

import torch
import vision  # noqa: F401 (before timm and transformers)

import diffusers
import timm
import transformers
from diffusers.models.embeddings import apply_rotary_emb, get_3d_rotary_pos_embed
from diffusers.models.transformers.transformer_cosmos import CosmosRotaryPosEmbed
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from diffusers.models.transformers.transformer_flux2 import Flux2PosEmbed
from diffusers.models.transformers.transformer_hunyuan_video import HunyuanVideoRotaryPosEmbed
from diffusers.models.transformers.transformer_lumina2 import Lumina2RotaryPosEmbed
from diffusers.models.transformers.transformer_ltx import LTXVideoRotaryPosEmbed
from diffusers.models.transformers.transformer_ltx import apply_rotary_emb as apply_ltx
from diffusers.models.transformers.transformer_ltx2 import LTX2AudioVideoRotaryPosEmbed, apply_split_rotary_emb
from diffusers.models.transformers.transformer_mochi import MochiRoPE
from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed
from diffusers.models.transformers.transformer_z_image import RopeEmbedder
from timm.layers import apply_rot_embed_cat
from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed
from timm.models.beit import Attention as BeitAttention
from timm.models.swin_transformer import SwinTransformerBlock, WindowAttention
from timm.models.swin_transformer_v2 import SwinTransformerV2Block
from transformers.models.apertus import modeling_apertus as apertus
from transformers.models.beit.modeling_beit import BeitRelativePositionBias
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.cwm import modeling_cwm as cwm
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek_v3
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek_v4
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3
from transformers.models.ernie4_5 import modeling_ernie4_5 as ernie4_5
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.gemma2 import modeling_gemma2 as gemma2
from transformers.models.gemma3 import modeling_gemma3 as gemma3
from transformers.models.gemma3n import modeling_gemma3n as gemma3n
from transformers.models.gemma4 import modeling_gemma4 as gemma4
from transformers.models.glm4 import modeling_glm4 as glm4
from transformers.models.glm4_moe import modeling_glm4_moe as glm4_moe
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gpt_oss import modeling_gpt_oss as gpt_oss
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.helium import modeling_helium as helium
from transformers.models.hunyuan_vl import modeling_hunyuan_vl as hunyuan_vl
from transformers.models.jina_embeddings_v3 import modeling_jina_embeddings_v3 as jina_embeddings_v3
from transformers.models.lfm2 import modeling_lfm2 as lfm2
from transformers.models.llama import modeling_llama as llama
from transformers.models.llama4 import modeling_llama4 as llama4
from transformers.models.minimax_m2 import modeling_minimax_m2 as minimax_m2
from transformers.models.mistral import modeling_mistral as mistral
from transformers.models.modernbert import modeling_modernbert as modernbert
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.nomic_bert import modeling_nomic_bert as nomic_bert
from transformers.models.olmo2 import modeling_olmo2 as olmo2
from transformers.models.olmo3 import modeling_olmo3 as olmo3
from transformers.models.phi import modeling_phi as phi
from transformers.models.phi3 import modeling_phi3 as phi3
from transformers.models.pixtral import modeling_pixtral as pixtral
from transformers.models.qwen2 import modeling_qwen2 as qwen2
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3 import modeling_qwen3 as qwen3
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen3_5
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl
from transformers.models.sam.modeling_sam import SamVisionAttention
from transformers.models.sam2_video import modeling_sam2_video as sam2_video
from transformers.models.sam3 import modeling_sam3 as sam3
from transformers.models.smollm3 import modeling_smollm3 as smollm3
from transformers.models.stablelm import modeling_stablelm as stablelm
from transformers.models.swin.modeling_swin import SwinRelativePositionBias
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.vit_mae import modeling_vit_mae as vit_mae
from transformers.models.vjepa2 import modeling_vjepa2 as vjepa2
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

import pegen_kernels as pk
from pegen_kernels import _native

FAST = {"targets": "native", "dtypes": "float32"}
ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def places(last):
    """Whole positions from 0 to `last`, these two among them."""
    return torch.cat(
        [torch.tensor([0, last]), torch.randint(0, last, (94,), generator=torch.Generator().manual_seed(2))]
    )


def cells(*sizes):
    """Positions of a row-major grid."""
    return torch.stack(torch.meshgrid(*map(torch.arange, sizes), indexing="ij"), -1).flatten(0, -2)


def apart(found, expected):
    assert found.shape == tuple(expected.shape)
    return float((torch.from_numpy(found).double() - expected.detach().double()).abs().max())


class Used:
    """What the descriptions say that a model uses: a kernel of these options, and the command that makes it."""

    def __init__(self, model, **more):
        for spec in self.descriptions():
            for entry in spec["models"]:
                if model in entry["names"]:
                    self.spec, self.options = spec, {**entry["options"], **{k: str(v) for k, v in more.items()}}
                    return
        raise AssertionError(f"no description says that {model} uses it")

    @staticmethod
    @functools.lru_cache(None)
    def descriptions():
        return json.loads(
            subprocess.run([_native.program(), "specs", "--json"], check=True, capture_output=True).stdout
        )

    @property
    def command(self):
        """The description's name, and its options."""
        return " ".join([self.spec["name"], *(f"{name}={value}" for name, value in sorted(self.options.items()))])

    @functools.cached_property
    def kernel(self):
        return pk.compile(self.spec["name"], **self.options, **FAST)

    def encoded(self, x, positions=None, **operands):
        numbers = {name: value.detach().numpy() for name, value in operands.items()}
        if positions is not None:
            positions = positions.double().reshape(x.shape[-2], -1).numpy()
        return self.kernel.encode(x.numpy(), positions=positions, operands=numbers or None)

    def weighted(self, bias, positions, causal=False, scale=0.0, k_positions=None, **operands):
        """The difference of attention from that of a model's own bias [H,N,N], of random q, k and v."""
        q, k, v = (rows(1, bias.shape[0], bias.shape[-1], self.kernel.head_dim, seed=seed) for seed in (1, 2, 3))
        scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5) + bias.detach()
        if causal:
            scores = scores + torch.full(bias.shape[-2:], -torch.inf).triu(1)
        found = self.attended(q, k, v, positions, k_positions, causal=causal, scale=scale, **operands)
        return apart(found, scores.softmax(-1) @ v)

    def attended(self, q, k, v, positions, k_positions=None, causal=False, scale=0.0, inputs=None, **operands):
        numbers = {name: value.detach().numpy() for name, value in operands.items()}
        place = lambda r: None if r is None else r.double().reshape(q.shape[-2], -1).numpy()  # noqa: E731
        # fmt: off
        out = self.kernel.attention(*(x.contiguous().numpy() for x in (q, k, v)), place(positions), causal=causal,
                                    k_positions=place(k_positions), operands=numbers or None, scale=scale,
                                    inputs=inputs and {name: x.contiguous().numpy() for name, x in inputs.items()})
        # fmt: on
        return out[0] if isinstance(out, tuple) else out


# ---- Language: rotations of q and k by one position, by the command and with the model's own frequencies, rounded
# as it does


class Rotation(NamedTuple):
    turn: Callable  # of rows [B,H,N,D] and positions [N]
    frequencies: Callable  # those of the last turn: some rules choose them by the length of the text
    factor: float = 1.0


def halves(module, config, layer=None):
    """The rotation of a module of transformers that has a class of its own for it."""
    name = next(name for name in vars(module) if name.endswith("RotaryEmbedding") and "Vision" not in name)
    rotary, prefix = getattr(module, name)(config), f"{layer}_" if layer else ""

    def turn(x, positions):
        cos, sin = rotary(x, positions[None], *((layer,) if layer else ()))
        own = 2 * len(getattr(rotary, f"{prefix}inv_freq"))
        return torch.cat([module.apply_rotary_pos_emb(*2 * [x[..., :own]], cos, sin)[0], x[..., own:]], -1)

    return Rotation(turn, lambda: getattr(rotary, f"{prefix}inv_freq"), getattr(rotary, f"{prefix}attention_scaling"))


def of_llama(**options):
    """transformers' code of Llama is that of many others: they differ in their options."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072}
    return halves(llama, transformers.LlamaConfig(**{**sizes, **options}))


def rule(kind, base, trained, **words):
    given = {"rope_type": kind, "rope_theta": base, "original_max_position_embeddings": trained, **words}
    return {"rope_parameters": given, "max_position_embeddings": 131072}


def of_llama3(factor, high=4.0, **sizes):
    return {**rule("llama3", 500000.0, 8192, factor=factor, low_freq_factor=1.0, high_freq_factor=high), **sizes}


def of_gptj():
    table = gptj.create_sinusoidal_positions(131072, 64)

    def turn(x, positions):
        sin, cos = table[positions][None].chunk(2, -1)
        turned = gptj.apply_rotary_pos_emb(x[..., :64].transpose(1, 2), sin, cos).transpose(1, 2)
        return torch.cat([turned, x[..., 64:]], -1)

    return Rotation(turn, lambda: 1 / 10000 ** (torch.arange(0, 64, 2, dtype=torch.int64) / 64))


def of_llama4():
    rotary = llama4.Llama4TextRotaryEmbedding(transformers.Llama4TextConfig(**of_llama3(16.0, 1.0)))

    def turn(x, positions):
        return llama4.apply_rotary_emb(*2 * [x.transpose(1, 2)], rotary(x, positions[None]))[0].transpose(1, 2)

    return Rotation(turn, lambda: rotary.inv_freq)


def of_deepseek():
    """Its code writes the pairs apart from one another, of q and k alike, which scores do not see."""
    words = {"factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    rotary = deepseek_v3.DeepseekV3RotaryEmbedding(
        transformers.DeepseekV3Config(**rule("yarn", 10000.0, 4096, **words))
    )

    def turn(x, positions):
        turned, _ = deepseek_v3.apply_rotary_pos_emb_interleave(x, x, *rotary(x, positions[None]))
        return turned.unflatten(-1, (2, 32)).transpose(-1, -2).flatten(-2)

    return Rotation(turn, lambda: rotary.inv_freq, rotary.attention_scaling)


def of_longrope():
    steps = torch.arange(48) / 48.0
    factors = {"short_factor": (1 + steps).tolist(), "long_factor": (1 + 60 * steps**2).tolist()}
    return halves(phi3, transformers.Phi3Config(**rule("longrope", 10000.0, 4096, **factors)))


def of_global_layers(module, rotary):
    """Gemma's layers of global attention, where a function turns one tensor at a time."""
    layer = "full_attention"

    def turn(x, positions):
        return module.apply_rotary_pos_emb(x, *rotary(x, positions[None], layer))

    return Rotation(turn, lambda: rotary.full_attention_inv_freq, rotary.full_attention_attention_scaling)


def of_deepseek_v4():
    """The last 64 channels of 512, in layers without compressed keys."""
    rotary = deepseek_v4.DeepseekV4RotaryEmbedding(transformers.DeepseekV4Config())

    def turn(x, positions):
        return deepseek_v4.apply_rotary_pos_emb(x, *rotary(x, positions[None], "main"))

    return Rotation(turn, lambda: rotary.main_inv_freq)


def gemma3_4b():
    rules = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
             "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}}  # fmt: skip
    return transformers.Gemma3TextConfig(rope_parameters=rules)


def of_neox(share, **sizes):
    words = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}
    return halves(gpt_neox, transformers.GPTNeoXConfig(rope_parameters=words, **sizes))


def layers(module, config, layer):
    return lambda: halves(module, config(), layer)


def default(module, config, **words):
    """The rotation of a configuration with default angles."""
    rule = {"rope_type": "default", "rope_theta": words.pop("base", 10000.0)}
    if "share" in words:
        rule["partial_rotary_factor"] = words.pop("share")
    return lambda: halves(module, config(rope_parameters=rule, **words))


LANGUAGE = {
    "Llama 2": of_llama,
    "Code Llama": lambda: of_llama(rope_theta=1000000.0),
    "Llama 3": lambda: of_llama(rope_theta=500000.0),
    "Llama 3.1": lambda: of_llama(**of_llama3(8.0)),
    "Llama 3.2 1B": lambda: of_llama(**of_llama3(32.0, hidden_size=2048)),
    "Llama 3.2 3B": lambda: of_llama(**of_llama3(32.0, hidden_size=3072, num_attention_heads=24)),
    "Llama 4 Scout": of_llama4,
    "Mistral 7B v0.1": default(mistral, transformers.MistralConfig),
    "Mistral 7B v0.3": default(mistral, transformers.MistralConfig, base=1000000.0),
    "Qwen2": lambda: halves(qwen2, transformers.Qwen2Config(hidden_size=4096, rope_theta=1000000.0)),
    "Qwen3": lambda: halves(qwen3, transformers.Qwen3Config(head_dim=128, rope_theta=1000000.0)),
    "Qwen3-Next": default(qwen3_next, transformers.Qwen3NextConfig, base=10000000.0, share=0.25),
    "Gemma 2": default(gemma2, transformers.Gemma2Config),
    "Gemma 3 (layers of local attention)": layers(gemma3, gemma3_4b, "sliding_attention"),
    "Gemma 3 4B, 12B (layers of global attention)": layers(gemma3, gemma3_4b, "full_attention"),
    "Gemma 3n (layers of global attention)": lambda: of_global_layers(
        gemma3n, gemma3n.Gemma3nRotaryEmbedding(transformers.Gemma3nTextConfig())),
    "Gemma 4 (layers of global attention, proportional)": lambda: of_global_layers(
        gemma4, gemma4.Gemma4TextRotaryEmbedding(transformers.Gemma4TextConfig())),
    "Phi-2": lambda: halves(phi, transformers.PhiConfig(hidden_size=2560, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.4})),
    "Phi-3-mini-4k": lambda: halves(phi3, transformers.Phi3Config()),
    "Phi-3-mini-128k (longrope)": of_longrope,
    "Phi-4": default(phi3, transformers.Phi3Config, base=250000.0, hidden_size=5120, num_attention_heads=40),
    "MiniMax-M2": lambda: halves(minimax_m2, transformers.MiniMaxM2Config(rotary_dim=64)),
    "GLM-4 (0414)": lambda: halves(glm4, transformers.Glm4Config()),
    "GLM-4.5": default(glm4_moe, transformers.Glm4MoeConfig, base=1000000.0, share=0.5, head_dim=128),
    "ERNIE 4.5": lambda: halves(ernie4_5, transformers.Ernie4_5Config()),
    "GPT-J 6B": of_gptj,
    "GPT-NeoX 20B": lambda: of_neox(0.25, hidden_size=6144, num_attention_heads=64),
    "Pythia 6.9B": lambda: of_neox(0.25, hidden_size=4096, num_attention_heads=32),
    "OLMo 2": default(olmo2, transformers.Olmo2Config, base=500000.0),
    "OLMo 3 (layers of local attention)": layers(olmo3, transformers.Olmo3Config, "sliding_attention"),
    "SmolLM3 3B": lambda: halves(smollm3, transformers.SmolLM3Config()),
    "StableLM 3B": lambda: halves(stablelm, transformers.StableLmConfig()),
    "Falcon 7B": lambda: halves(falcon, transformers.FalconConfig()),
    "Helium 1": lambda: halves(helium, transformers.HeliumConfig()),
    "LFM2 1.2B": lambda: halves(lfm2, transformers.Lfm2Config(hidden_size=2048)),
    "Apertus 8B": lambda: halves(apertus, transformers.ApertusConfig()),
    "CWM": lambda: halves(cwm, transformers.CwmConfig()),
    "nomic-embed-text v1.5": lambda: halves(nomic_bert, transformers.NomicBertConfig()),
    "jina-embeddings v3": lambda: halves(jina_embeddings_v3, transformers.JinaEmbeddingsV3Config()),
    "gpt-oss": lambda: halves(gpt_oss, transformers.GptOssConfig()),
    "DeepSeek-V3 (the 64 channels that turn)": of_deepseek,
    "DeepSeek-V4 (layers of windows alone)": of_deepseek_v4,
    "ModernBERT (layers of global attention)": layers(modernbert, transformers.ModernBertConfig, "full_attention"),
    "ModernBERT (layers of local attention)": layers(modernbert, transformers.ModernBertConfig, "sliding_attention"),
}  # fmt: skip


def language(model):
    """Differences of the command up to position 4095, of a rule that it has not with the model's own frequencies; and
    up
    to 131071 with these and phases rounded to float32."""
    used, rotation = Used(model), LANGUAGE[model]()
    x, near, far = rows(1, 2, 96, int(used.options["head_dim"])), places(4095), places(131071)
    theirs = rotation.turn(x, near)
    operands = {} if used.spec["name"] == "rope" else {"inv_freq": rotation.frequencies()}
    found = used.encoded(x, near, **operands)
    kept = {
        name: used.options.get(name, other)
        for name, other in (
            ("head_dim", 64),
            ("layout", "interleaved" if used.spec["name"] == "rope" else "split"),
            ("rotary_dim", 0),
            ("rotary_from", 0),
        )
    }
    if "proportional" in used.options:  # the other pairs have frequencies of 0 there
        kept["rotary_dim"] = 0
    rounded = Used("Llama 2 with dynamic NTK", **kept, attention_factor=rotation.factor)
    expected = rotation.turn(x, far)
    return apart(found, theirs), apart(rounded.encoded(x, far, inv_freq=rotation.frequencies()), expected)


# ---- Images, volumes and biases: what a command is held against says which differences are its


def of_timm(name, model):
    """A model of timm of one layer: the sines and cosines that it makes, and how it applies them."""
    net = timm.create_model(name, depth=1, num_classes=0).eval()
    (h, w), skip, block = net.patch_embed.grid_size, net.num_prefix_tokens, net.blocks[0].attn
    used, x = Used(model, skip_tokens=skip, grid=f"{h},{w}"), rows(1, block.num_heads, skip + h * w, 64)
    table, operands = net.rope.get_embed([h, w]), {}
    if hasattr(net.rope, "freqs"):  # of each layer and head
        table, operands = table[0], {"freqs": net.rope.freqs[:, 0]}
    turned = apply_rot_embed_cat(x[:, :, skip:], table, half=getattr(block, "rotate_half", False))
    return used, apart(used.encoded(x, **operands), torch.cat([x[:, :, :skip], turned], 2))


def of_dinov3(model):
    used = Used(model, grid="14,14", skip_tokens=5)
    rope = dinov3.DINOv3ViTRopePositionEmbedding(transformers.DINOv3ViTConfig()).eval()
    x = rows(1, 6, 5 + 14 * 14, 64)
    return used, apart(used.encoded(x), dinov3.apply_rotary_pos_emb(x, x, *rope(torch.zeros(1, 3, 224, 224)))[0])


def of_qwen_vision(model):
    used, x = Used(model, grid="16,24"), rows(1, 2, 16 * 24, 80)
    cos, sin = qwen2_vl.Qwen2VLVisionRotaryEmbedding(qwen2_vl.Qwen2VLVisionConfig())(x, cells(16, 24))
    turned, _ = qwen2_vl.apply_rotary_pos_emb_vision(*2 * [x[0].transpose(0, 1)], cos, sin)
    return used, apart(used.encoded(x), turned.transpose(0, 1)[None])


def of_sam2(model, module, config):
    """Rows [B,H,N,D] of a map of 10 x 14 cells, whose columns the code counts first."""
    used, place = Used(model), cells(10, 14)
    name = "Sam2VideoVisionRotaryEmbedding" if "Sam2" in config.__class__.__name__ else "Sam3ViTRotaryEmbedding"
    x = rows(1, 2, len(place), int(used.options["head_dim"]))
    tables = getattr(module, name)(config)(x, place.flip(1))
    return used, apart(used.encoded(x, place), module.apply_rotary_pos_emb_2d(x, x, *tables)[0])


def of_pixtral(model):
    used, place = Used(model), cells(10, 14)
    x = rows(1, 2, len(place), 64)
    tables = pixtral.PixtralVisionRotaryEmbedding(transformers.PixtralVisionConfig())(x, place)
    return used, apart(
        used.encoded(x, place), pixtral.apply_rotary_pos_emb(x[0], x[0], *tables, unsqueeze_dim=0)[0][None]
    )


def of_gemma4_vision(model):
    """Places (x, y), whose code turns the channels of an axis apart from the others."""
    used, place = Used(model), cells(10, 14)
    x = rows(1, 2, len(place), 64)
    tables = gemma4.Gemma4VisionRotaryEmbedding(transformers.Gemma4VisionConfig())(x, place.flip(1)[None])
    turned = gemma4.apply_multidimensional_rope(x.transpose(1, 2), *tables, place.flip(1)[None]).transpose(1, 2)
    return used, apart(used.encoded(x, place), turned)


def of_llama4_vision(model):
    """The class token is the last row, and at no place: -1 is the origin here."""
    used, config = Used(model), transformers.Llama4VisionConfig(hidden_size=1408, image_size=336, patch_size=14)
    place = torch.cat([cells(24, 24), torch.full((1, 2), -1)])
    x = rows(1, 2, len(place), 88)
    made = llama4.Llama4VisionRotaryEmbedding(config)(x)
    turned = llama4.vision_apply_rotary_emb(*2 * [x.transpose(1, 2)], made)[0].transpose(1, 2)
    return used, apart(used.encoded(x, place), turned)


def of_xdrope(model):
    """A text, an image of 4 x 6 cells, and text on; the axes are text, columns, rows and images."""
    used = Used(model)
    rule = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16] * 4}
    rotary = hunyuan_vl.HunYuanVLRotaryEmbedding(transformers.HunYuanVLTextConfig(head_dim=128, rope_parameters=rule))
    text = lambda t: t[:, None].expand(-1, 4)  # noqa: E731
    image = torch.cat([20 + torch.arange(24)[:, None], cells(4, 6).flip(1), torch.zeros(24, 1)], 1).long()
    place = torch.cat([text(torch.arange(20)), image, text(44 + torch.arange(400))])
    x = rows(1, 2, len(place), 128)
    return used, apart(used.encoded(x, place), hunyuan_vl.apply_rotary_pos_emb(x, x, *rotary(x, place.T[:, None]))[0])


def of_deepseek_v4_attention(model):
    """Rows of one head, which are keys and values, and 64 heads of q: a window, sinks, the output turned back."""
    used, config = Used(model), transformers.DeepseekV4Config()
    q, c, sinks, place = rows(1, 64, 200, 512), rows(1, 1, 200, 512, seed=2), rows(64), torch.arange(200)
    tables = deepseek_v4.DeepseekV4RotaryEmbedding(config)(q, place[None], "main")
    turn, back = (
        lambda x, sign=sign: deepseek_v4.apply_rotary_pos_emb(x, tables[0], sign * tables[1]) for sign in (1, -1)
    )
    behind = place[:, None] - place
    mask = torch.zeros(200, 200).masked_fill((behind < 0) | (behind >= config.sliding_window), -torch.inf)
    layer = types.SimpleNamespace(num_key_value_groups=64, sinks=sinks, training=False)
    out, _ = deepseek_v4.eager_attention_forward(layer, turn(q), turn(c), turn(c), mask, 512**-0.5)
    return used, apart(used.attended(q, c, c, place, causal=True, sinks=sinks), back(out.transpose(1, 2)))


def mrope(module, config, base, sections, **words):
    """A model's rotation of rows at positions [N,3], by its own code; its frequencies, each on the axis that turns its
    pair."""
    words |= {"rope_type": "default", "rope_theta": base, "mrope_section": sections}
    rotary = getattr(module, config.__name__.replace("Config", "RotaryEmbedding").replace("Qwen2VLText", "Qwen2VL"))(
        config(hidden_size=4096, num_attention_heads=32, rope_parameters=words)
    )

    def turn(x, place):
        return module.apply_rotary_pos_emb(x, x, *rotary(x, place.T[:, None]))[0]

    def frequencies():
        sines = rotary(torch.zeros(1), torch.eye(3)[:, None])[1][0, :, : len(rotary.inv_freq)]  # at a step of each axis
        return (rotary.inv_freq * (sines != 0))[:, None]

    return Rotation(turn, frequencies)


def of_sections(model, *how, last=4095, **words):
    """Text, then an image, then text on, at positions up to `last`."""
    rotation, used = mrope(*how, **words), Used(model)
    text = lambda t: t[:, None].expand(-1, 3)  # noqa: E731
    place = torch.cat([text(torch.arange(20)), 20 + cells(4, 6, 8), text(places(last))])
    x = rows(1, 2, len(place), int(used.options["head_dim"]))
    operands = {"freqs": rotation.frequencies()} if used.spec["name"] == "rope_mixed" else {}
    return used, apart(used.encoded(x, place, **operands), rotation.turn(x, place))


def of_diffusers(model, tables, place=cells(3, 10, 14), unbind=-1):
    """tables: cosines and sines [N,D] of tokens, or complex numbers [N,D/2]. place: where the tokens are."""
    used = Used(model)
    if isinstance(tables, torch.Tensor):
        tables = [part.repeat_interleave(2, -1) for part in (tables.real, tables.imag)]
    x = rows(1, 2, len(place), int(used.options["head_dim"]))
    turned = apply_rotary_emb(x, [table.reshape(len(place), -1) for table in tables], use_real_unbind_dim=unbind)
    return used, apart(used.encoded(x, place), turned)


def of_mochi(model):
    rope, used = MochiRoPE(), Used(model)
    freqs, x = rows(3, 24, 64) / 10, rows(1, 24, 3 * 10 * 14, 128)
    tables = [table.transpose(0, 1).repeat_interleave(2, -1) for table in rope(freqs, 3, 10, 14, dtype=freqs.dtype)]
    turned = torch.cat([apply_rotary_emb(x[:, h : h + 1], [table[h] for table in tables]) for h in range(24)], 1)
    return used, apart(used.encoded(x, rope._get_positions(3, 10, 14, dtype=freqs.dtype), freqs=freqs), turned)


def of_ltx(model, rope, turn, modality="video"):
    """A small video, or a second of audio; coordinates as fractions of the lengths that models were trained with."""
    used, axes = Used(model), 3 if modality == "video" else 1
    place = cells(3, 10, 14)[:, :axes] * torch.tensor([8 / 25, 32.0, 32.0])[:axes]
    at = place / torch.tensor([rope.base_num_frames, rope.base_height, rope.base_width])[:axes]
    x = rows(1, 32, len(place), int(used.options["head_dim"]))
    wide = x.transpose(1, 2).flatten(2)
    powers = torch.linspace(0, 1, rope.dim // 2 // axes, dtype=torch.float32 if turn is apply_ltx else torch.float64)
    frequencies = (rope.theta**powers * math.pi / 2).float()
    made = rope(wide, video_coords=place.T[None]) if turn is apply_ltx else rope(place.T[None])
    return used, apart(
        used.encoded(x, at, frequencies=frequencies), turn(wide, made).unflatten(2, (32, -1)).transpose(1, 2)
    )


def of_mae(model):
    used, made = Used(model, grid="14,14", skip_tokens=1), vit_mae.ViTMAEEmbeddings(transformers.ViTMAEConfig())
    made.initialize_weights()
    return used, apart(used.encoded(torch.zeros(1, 1, 197, 768)), made.position_embeddings[None])


def of_sincos(model):
    used = Used(model, grid="14,14")
    return used, apart(used.encoded(torch.zeros(1, 1, 196, 768)), build_sincos2d_pos_embed([14, 14], 768)[None, None])


def of_vjepa2(model, config):
    attention = vjepa2.VJEPA2RopeAttention(config, config.hidden_size, config.num_attention_heads)
    size, depth = attention.grid_size, attention.grid_depth
    used = Used(model, grid=f"{depth},{size},{size}")
    x = rows(1, 2, depth * size * size, attention.attention_head_size)
    return used, apart(used.encoded(x), attention.apply_rotary_embeddings(x, attention.get_position_ids(x[0])))


def of_swin(model, window):
    used, heads = Used(model), window.relative_position_bias_table.shape[-1]
    torch.nn.init.normal_(window.relative_position_bias_table)
    table = window.relative_position_bias_table.reshape(13, 13, heads)
    bias = window() if isinstance(window, SwinRelativePositionBias) else window._get_rel_pos_bias()
    return used, used.weighted(bias[0], cells(7, 7), relative_position_bias_table=table)


def shifted(sizes, window, shift):
    """Numbers of the windows that tokens lie in, which swin.lua takes as their third coordinate."""
    at = (cells(*sizes) + window - shift) // window
    return at[:, 0] * (sizes[1] + 1) + at[:, 1]


def of_swin_layer(model, block):
    """A layer of timm with shifted windows, as Swin or Swin V2 have: it rolls, cuts, masks, and puts together again."""
    attention, window, shift = block.eval().attn, block.window_size[0], block.shift_size[0]
    heads, tokens, size = attention.num_heads, 4 * window**2, 2 * window
    attention.proj, x = torch.nn.Identity(), rows(1, size, size, 32 * heads)
    is_cosine = hasattr(attention, "logit_scale")
    with torch.no_grad():
        torch.nn.init.normal_(attention.qkv.weight, std=(32 * heads) ** -0.5)
        if is_cosine:
            torch.nn.init.uniform_(attention.logit_scale, 0, 6)  # some of which are clamped
            torch.nn.init.zeros_(attention.q_bias), torch.nn.init.zeros_(attention.v_bias)
            table = 16 * torch.sigmoid(attention.cpb_mlp(attention.relative_coords_table))
        else:
            table = torch.nn.init.normal_(attention.relative_position_bias_table)
        theirs = block._attn(x).reshape(tokens, heads, 32).transpose(0, 1)[None]
        q, k, v = (
            torch.nn.functional.linear(x, attention.qkv.weight, None if is_cosine else attention.qkv.bias)
            .reshape(1, tokens, 3, heads, 32)
            .permute(2, 0, 3, 1, 4)
        )
    place = torch.cat([cells(size, size), shifted((size, size), window, shift)[:, None]], 1)
    order = place[:, 2].argsort(stable=True)  # windows side by side, which is the fastest
    used, found = Used(model), torch.empty_like(v)
    operands = {"relative_position_bias_table": table.reshape(2 * window - 1, 2 * window - 1, heads)}
    if is_cosine:
        operands["logit_scale"] = attention.logit_scale.reshape(heads)
        q, k = (torch.nn.functional.normalize(x, dim=-1) for x in (q, k))
    out = used.attended(*(rows[:, :, order] for rows in (q, k, v)), place[order], **operands)
    found[:, :, order] = torch.from_numpy(out)
    return used, apart(found.numpy(), theirs)


def of_beit(model, made):
    """made: the module of a bias for 14 x 14 patches. The class token is one coordinate in q, another one in k."""
    used, heads = Used(model), made.relative_position_bias_table.shape[-1]
    table = torch.nn.init.normal_(made.relative_position_bias_table)
    bias = made((14, 14)) if isinstance(made, BeitRelativePositionBias) else made._get_rel_pos_bias()
    place = torch.zeros(197, 3)
    place[1:, :2] = cells(14, 14)
    q, k = place.clone(), place.clone()
    q[0, 2], k[0, 2] = 1, 2
    return used, used.weighted(bias.reshape(heads, 197, 197), q, k_positions=k, relative_position_bias_table=table)


def of_t5(model, causal):
    used = Used(model)
    heads = int(used.options["heads"])
    config = transformers.T5Config(num_heads=heads, d_kv=64, d_model=64 * heads, is_decoder=causal)
    layer = T5Attention(config, has_relative_attention_bias=True)
    table, bias = torch.nn.init.normal_(layer.relative_attention_bias.weight), layer.compute_bias(200, 200)[0]
    return used, used.weighted(bias, torch.arange(200), causal, scale=1.0, relative_attention_bias=table)


def of_sam(model):
    """An attention layer of SAM's encoder, in a window."""
    used, heads = Used(model), 2
    layer = SamVisionAttention(transformers.SamVisionConfig(hidden_size=64 * heads, num_attention_heads=heads), 14)
    for table in (layer.rel_pos_h, layer.rel_pos_w):
        torch.nn.init.normal_(table, std=0.25)
    layer.proj, x = torch.nn.Identity(), rows(1, 14, 14, 64 * heads)
    with torch.no_grad():
        theirs = layer(x)[0].reshape(1, 196, heads, 64).transpose(1, 2)
        q, k, v = layer.qkv(x).reshape(1, 196, 3, heads, 64).permute(2, 0, 3, 1, 4)
        products = {"rel_h": q @ layer.rel_pos_h.T, "rel_w": q @ layer.rel_pos_w.T}
    return used, apart(used.attended(q, k, v, cells(14, 14), inputs=products), theirs)


def of_deberta(model):
    """An attention layer of DeBERTa-v3, which projects the embeddings of distances as tokens."""
    used, heads = Used(model), 2
    config = transformers.DebertaV2Config(
        hidden_size=64 * heads, num_attention_heads=heads, relative_attention=True, pos_att_type=["c2p", "p2c"],
        position_buckets=256, max_position_embeddings=512, share_att_key=True, layer_norm_eps=1e-7,
    )  # fmt: skip
    layer, x, distances = DisentangledSelfAttention(config).eval(), rows(1, 700, 64 * heads), rows(1, 512, 64 * heads)
    by_head = lambda y: layer.transpose_for_scores(y, heads)[None]  # noqa: E731
    with torch.no_grad():
        theirs = layer(x, torch.ones(1, 1, 700, 700), rel_embeddings=distances[0])[0]
        q, k, v = (by_head(project(x)) for project in (layer.query_proj, layer.key_proj, layer.value_proj))
        of_keys, of_queries = by_head(layer.key_proj(distances)), by_head(layer.query_proj(distances))
        products = {"c2p": q @ of_keys.transpose(-1, -2), "p2c": k @ of_queries.transpose(-1, -2)}
    found = used.attended(q, k, v, torch.arange(700), inputs=products)
    return used, apart(found, theirs.reshape(1, 700, heads, 64).transpose(1, 2))


def of_wav2vec2_bert(model):
    """An attention layer of Wav2Vec2-BERT, whose rows of distances are clipped to 64 frames behind and 8 ahead."""
    used, heads = Used(model), 2
    config = transformers.Wav2Vec2BertConfig(
        hidden_size=64 * heads, num_attention_heads=heads, position_embeddings_type="relative_key"
    )
    layer, x = Wav2Vec2BertSelfAttention(config).eval(), rows(1, 200, 64 * heads)
    layer.linear_out = torch.nn.Identity()
    by_head = lambda y: y.reshape(1, 200, heads, 64).transpose(1, 2)  # noqa: E731
    with torch.no_grad():
        theirs = by_head(layer(x)[0])
        q, k, v = (by_head(project(x)) for project in (layer.linear_q, layer.linear_k, layer.linear_v))
        products = {"products": q @ layer.distance_embedding.weight.T}
    return used, apart(used.attended(q, k, v, torch.arange(200), inputs=products), theirs)


def of_alibi(model, make):
    used = Used(model)
    bias = make(int(used.options["heads"])).expand(-1, 200, 200)
    return used, used.weighted(bias, torch.arange(200), causal=True)


VIDEO = torch.zeros(1, 16, 3, 20, 28)  # 3, 10 and 14 patches of [1,2,2]
IMAGE = torch.cat([cells(40).expand(-1, 3), cells(1, 16, 24) + torch.tensor([40, 0, 0])])  # text before it
LONG = torch.cat([cells(40).expand(-1, 4), 9 * cells(2, 10, 14, 2)])  # of FLUX.2

# The function that measures, and its further arguments.
REST = {
    "Qwen2-VL": (of_sections, qwen2_vl, transformers.Qwen2VLTextConfig, 1000000.0, [16, 24, 24]),
    "Qwen3-VL": (of_sections, qwen3_vl, transformers.Qwen3VLTextConfig, 5000000.0, [24, 20, 20]),
    "Qwen3.5":
        (functools.partial(of_sections, head_dim=256, partial_rotary_factor=0.25), qwen3_5,
         transformers.Qwen3_5TextConfig, 10000000.0, [11, 11, 10]),
    "FLUX.1": (of_diffusers, FluxPosEmbed(10000, [16, 56, 56])(IMAGE), IMAGE),
    "FLUX.2": (of_diffusers, Flux2PosEmbed(2000, [32] * 4)(LONG), LONG),
    "Qwen-Image":
        (of_diffusers, QwenEmbedRope(10000, [16, 56, 56], True)._compute_video_freqs(3, 10, 14),
         cells(3, 10, 14) - torch.tensor([0, 5, 7])),
    "Z-Image": (of_diffusers, RopeEmbedder(256.0, [32, 48, 48], [1024, 512, 512])(IMAGE), IMAGE),
    "Lumina-Image 2.0":
        (of_diffusers, Lumina2RotaryPosEmbed(10000, [32] * 3)._get_freqs_cis(IMAGE[None])[0], IMAGE),
    "Wan 2.1": (of_diffusers, WanRotaryPosEmbed(128, (1, 2, 2), 1024)(VIDEO)),
    "HunyuanVideo": (of_diffusers, HunyuanVideoRotaryPosEmbed(2, 1, [16, 56, 56])(VIDEO)),
    "CogVideoX 5B": (of_diffusers, get_3d_rotary_pos_embed(64, ((0, 0), (10, 14)), (10, 14), 3)),
    "Cosmos-Predict1": (functools.partial(of_diffusers, unbind=-2), CosmosRotaryPosEmbed(128)(VIDEO)),
    "Mochi 1": (of_mochi,),
    "LTX-Video": (of_ltx, LTXVideoRotaryPosEmbed(2048), apply_ltx),
    "LTX-2 (video)":
        (of_ltx, LTX2AudioVideoRotaryPosEmbed(4096, rope_type="split"), apply_split_rotary_emb),
    "LTX-2 (audio)":
        (of_ltx, LTX2AudioVideoRotaryPosEmbed(2048, modality="audio", rope_type="split"),
         apply_split_rotary_emb, "audio"),
    "Qwen2-VL (vision)": (of_qwen_vision,),
    "HunyuanOCR (with alpha of its config)": (of_xdrope,),
    "SAM 2 (memory attention)": (of_sam2, sam2_video, transformers.Sam2VideoConfig()),
    "SAM 3 (vision, windows)": (of_sam2, sam3, transformers.Sam3ViTConfig()),
    "Pixtral (vision)": (of_pixtral,),
    "Gemma 4 (vision)": (of_gemma4_vision,),
    "Llama 4 (vision)": (of_llama4_vision,),
    "RoPE-ViT (axial)": (functools.partial(of_timm, "vit_small_patch16_rope_224"),),
    "RoPE-ViT (mixed)": (functools.partial(of_timm, "vit_small_patch16_rope_mixed_224"),),
    "timm's vit_*_patch16_rope_reg*_gap_256":
        (functools.partial(of_timm, "vit_medium_patch16_rope_reg1_gap_256"),),
    "EVA-02 at the resolution of its training": (functools.partial(of_timm, "eva02_tiny_patch14_224"),),
    "EVA-02 Ti/S at 336 pixels (24 x 24 patches, trained with 16 x 16)":
        (functools.partial(of_timm, "eva02_tiny_patch14_336"),),
    "Perception Encoder": (functools.partial(of_timm, "vit_pe_core_tiny_patch16_384"),),
    "DINOv3 (16 x 16 patches)": (functools.partial(of_timm, "vit_tiny_patch16_dinov3_qkvb"),),
    "DINOv3 (14 x 14 patches)": (of_dinov3,),
    "V-JEPA 2 ViT-L, ViT-g": (of_vjepa2, transformers.VJEPA2Config(frames_per_clip=16)),
    "V-JEPA 2 ViT-H":
        (of_vjepa2, transformers.VJEPA2Config(frames_per_clip=16, hidden_size=1280, num_attention_heads=16)),
    "MAE": (of_mae,),
    "timm's build_sincos2d_pos_embed": (of_sincos,),
    "Swin-T (first stage)": (of_swin, SwinRelativePositionBias(3, (7, 7))),
    "Swin-B (first stage)": (of_swin, WindowAttention(128, 4, 32, (7, 7))),
    "Swin-T (first stage, shifted windows)": (of_swin_layer, SwinTransformerBlock(96, (14, 14), 3, 32, 7, 3)),
    "SwinV2-T (first stage, shifted windows of 8)": (of_swin_layer, SwinTransformerV2Block(96, (16, 16), 3, 8, 4)),
    "BEiT-B/16": (of_beit, BeitRelativePositionBias(transformers.BeitConfig())),
    "BEiT-L/16": (of_beit, BeitAttention(1024, 16, window_size=(14, 14))),
    "T5-small (encoder)": (of_t5, False),
    "T5-base (decoder)": (of_t5, True),
    "SAM (windows)": (of_sam,),
    "DeBERTa-v3-base": (of_deberta,),
    "Wav2Vec2-BERT 2.0": (of_wav2vec2_bert,),
    "DeepSeek-V4 (attention to a window)": (of_deepseek_v4_attention,),
    "MPT-7B": (of_alibi, lambda heads: build_mpt_alibi_tensor(heads, 200)),
    "BLOOM 176B": (of_alibi, lambda heads: build_alibi_tensor(torch.ones(1, 200), heads, torch.float32)),
}  # fmt: skip


def other(model):
    how, *more = REST[model]
    torch.manual_seed(4)
    used, difference = how(model, *more)
    return f"`{used.command}`", difference
