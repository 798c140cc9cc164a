"""Models of transformers with random weights, small enough to be run forward and back in a test: one class a row."""
import torch
import vision  # noqa: F401 (before transformers)

import transformers as T

SIZES = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
WINDOW = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}
BOTH = {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
FULL = {"layer_types": ["full_attention"] * 2}
LOCAL = {"num_local_experts": 2, "num_experts_per_tok": 1}
ONE = {"num_experts": 2, "num_experts_per_tok": 1}
TWO = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
LATENT = {"q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
          "n_routed_experts": 2, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "num_key_value_heads": 4,
          "head_dim": 8}  # fmt: skip
OLDER = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}

# Rows are names of configurations and what of them differs from SIZES.
CAUSAL = {
    "Llama": {},
    "Mistral": WINDOW,
    "Qwen2": WINDOW,
    "Qwen3": WINDOW,
    "Gemma": {},
    "Phi3": WINDOW,
    "Olmo2": {},
    "Olmo3": WINDOW,
    "Gemma2": {**WINDOW, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 5.0},
    "Gemma3Text": {**BOTH, "query_pre_attn_scalar": 16},
    "GptOss": {**BOTH, **LOCAL},
    "Cohere": {},
    "Cohere2": WINDOW,
    "Granite": {},
    "Glm": {},
    "Glm4": {},
    "StableLm": {},
    "Starcoder2": WINDOW,
    "Helium": {},
    "SmolLM3": {},
    "Exaone4": WINDOW,
    "Ernie4_5": {},
    "Arcee": {},
    "Nemotron": {},
    "GPTNeoX": {},
    "Phi": {},
    "Olmo": {},
    "HunYuanDenseV1": {},
    "SeedOss": {},
    "Apertus": {},
    "Mixtral": {"num_local_experts": 2},
    "Qwen3Moe": {**ONE, "moe_intermediate_size": 32},
    "Olmoe": ONE,
    "GPT2": OLDER,
    "OPT": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "GPTBigCode": OLDER,
    "Llama4Text": {"attention_chunk_size": 8, "intermediate_size_mlp": 96, "num_local_experts": 2,
                   "layer_types": ["chunked_attention", "full_attention"]},
    "DeepseekV3": LATENT,
    # Code of these two reads the mask.
    "Doge": {"keep_window_size": 8},
    "DeepseekV32": {**LATENT, "q_lora_rank": 16, "head_dim": 16, "moe_intermediate_size": 32, "index_topk": 8,
                    "index_head_dim": 16, "index_n_heads": 2},
}  # fmt: skip
ROTATING = {  # which like_model_test.py patches, too
    "Glm4MoeLite": {**LATENT, "moe_intermediate_size": 32},
    "Persimmon": {},
    "BitNet": {},
    "Gemma4Text": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8, "global_head_dim": 32,
                   "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 97, "num_kv_shared_layers": 0},
    "MiniMax": LOCAL,
    "DiffLlama": {},
    "JetMoe": {},
    "Qwen2Moe": {**ONE, "moe_intermediate_size": 32},
    "GraniteMoe": LOCAL,
    "Ministral": {"sliding_window": 8},
    "Lfm2": FULL,
    "Ernie4_5_Moe": {"moe_num_experts": 2, "moe_k": 1},
    "GPTJ": {"rotary_dim": 8},
    "CodeGen": {"rotary_dim": 8},
    "FlexOlmo": ONE,
    "Qwen3Next": {**FULL, **ONE},
}  # fmt: skip
MORE = {
    "Afmoe": {**TWO, "num_dense_layers": 1},
    "Apertus1p5Text": {},
    "AriaText": {"moe_num_experts": 4, "moe_topk": 2},
    "Beam": {},
    "Cwm": {"sliding_window": 8},
    "Dory": {"num_hidden_layers": 4, "n_input_layers": 1, "n_recurrent_layers": 2, "n_output_layers": 1},
    "Dots1": {**TWO, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1},
    "Emu3Text": {},
    "Flint": BOTH,
    "Granite4VisionText": {},
    "GraniteDoclingText": {},
    "GraniteMoeHybrid": {**TWO, "layer_types": ["attention"] * 2, "position_embedding_type": "rope",
                         "shared_intermediate_size": 32, "mamba_n_heads": 4, "mamba_d_head": 32},
    "GraniteMoeSWA": TWO,
    "GraniteMoeShared": {**TWO, "shared_intermediate_size": 32},
    "GraniteSWA": {},
    "HYV3": TWO,
    "HrmText": {},
    "HunYuanMoEV1": {"num_experts": 4, "moe_topk": 2},
    "HunYuanVLText": SECTIONS,
    "HyperCLOVAX": {},
    "Jais2": {},
    "Lfm2Moe": {**TWO, **FULL, "num_dense_layers": 1},
    "Mellum": TWO,
    "Ministral3": {},
    "Molmo2Text": {},
    "MuseGlimmerText": {},
    "PaddleOCRText": SECTIONS,
    "Phimoe": TWO,
    "Qwen2VLText": SECTIONS,
    "Qwen2_5_VLText": SECTIONS,
    "Qwen3VLMoeText": {**TWO, **SECTIONS},
    "Qwen3VLText": SECTIONS,
    "SolarOpen": {**TWO, "n_routed_experts": 4, "n_group": 1, "topk_group": 1},
    "VaultGemma": {**BOTH, "query_pre_attn_scalar": 16},
}  # fmt: skip
ENCODERS = {
    "Bert": {},
    "Roberta": {},
    "DistilBert": {"dim": 64, "n_heads": 4, "n_layers": 2, "hidden_dim": 96},
    "Electra": {},
    "ModernBert": {"local_attention": 8, "global_attn_every_n_layers": 2},
    "Esm": {"position_embedding_type": "rotary", "mask_token_id": 4, "token_dropout": False},
    "Esmc": {"num_key_value_heads": 4},
    "EuroBert": {},
    "Gte": {},
    "JinaEmbeddingsV3": {},
    "NomicBert": {},
    "OpenAIPrivacyFilter": {**TWO, "sliding_window": 8},
    "Ultrabert": {},
}  # fmt: skip
IMAGE = {"image_size": 64, "patch_size": 16}
HALF = {**SIZES, **BOTH, "query_pre_attn_scalar": 16}
SOUND = {"num_mel_bins": 16, "max_source_positions": 40}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
          "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}  # fmt: skip
OTHERS = {  # whose inputs are more than tokens
    "DINOv3ViT": {**IMAGE, "num_register_tokens": 3},
    "LasrEncoder": {"num_mel_bins": 16, "subsampling_conv_channels": 32},
    "PixtralVision": IMAGE,
    "T5Gemma": {"encoder": HALF, "decoder": HALF},
    "ViT": IMAGE,
    "VoxtralRealtimeEncoder": SOUND,
    "Whisper": {**SOUND, **LAYERS, "d_model": 64, "decoder_start_token_id": 1},
}  # fmt: skip
CLASSES = {**CAUSAL, **ROTATING, **MORE, **ENCODERS, **OTHERS}


def given(name):
    """What a row's model is called with."""
    draw = torch.Generator().manual_seed(2)
    ids = torch.randint(3, 97, (2, 24), generator=draw)
    sound = torch.randn(2, 16, 80, generator=draw)
    if name in ("DINOv3ViT", "PixtralVision", "ViT"):
        return {"pixel_values": torch.randn(1, 3, 64, 64, generator=draw)}
    return {
        "LasrEncoder": {"input_features": sound.transpose(1, 2)},
        "T5Gemma": {"input_ids": ids, "decoder_input_ids": ids[:, :9]},
        "VoxtralRealtimeEncoder": {"input_features": sound},
        "Whisper": {"input_features": sound, "decoder_input_ids": ids[:, :9]},
    }.get(name, {"input_ids": ids})


def made(name):
    """A row's model, with its own code's attention."""
    config = getattr(T, f"{name}Config")(**{**SIZES, **CLASSES[name]})
    ends = [] if name in ENCODERS or name in OTHERS else ["ForCausalLM", "LMHeadModel"]
    names = [base + end for end in ends for base in (name, name.removesuffix("Text"))]
    kinds = [getattr(T, word) for word in (*names, f"{name}Model", name) if hasattr(T, word)]
    torch.manual_seed(1)
    model = kinds[0]._from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=2 * parameter.shape[-1] ** -0.5)  # of which attention is far from even
    return model


def weighted(rows):
    """A number that every channel of every row has its own part in, with which a model is trained."""
    return (rows.float() * torch.randn(rows.shape, generator=torch.Generator().manual_seed(5))).mean()


def gradients(model):
    return {name: x.grad for name, x in model.named_parameters() if x.grad is not None}


def apart(found, expected):
    """The largest difference of gradients, of the largest of its parameter. What cancels, such as a bias of keys that
    do not turn, is measured by the model's largest."""
    assert found.keys() == expected.keys()
    most = max(float(x.abs().max()) for x in expected.values())
    return max(float((found[name] - x).abs().max()) / max(float(x.abs().max()), most * 2.0**-10)
               for name, x in expected.items())  # fmt: skip
