"""What configurations of transformers leave unsaid, by `model_type`: which channels are a pair, and what it means that
a field is missing. tests/python/config_test.py holds each row against the models' own code.
"""
from __future__ import annotations


def _by_model(rows: dict) -> dict:
    return {model: value for value, models in rows.items() for model in models.split()}


LAYOUT = _by_model({
    "split": (
        "afmoe apertus apertus1p5_text arcee aria_text bamba beam bitnet chameleon cosmos3_edge_text csm "
        "csm_depth_decoder_model cwm deepseek_ocr2_text dia_decoder dia_encoder diffllama diffusion_gemma_text doge "
        "dory dots1 emu3_text_model esmc eurobert evolla exaone4 exaone_moe falcon falcon_h1 flex_olmo flint gemma "
        "gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm4_moe glm4v_moe_text glm_image_text "
        "glmasr_encoder gpt_neox gpt_neox_japanese gpt_oss gradium_phonon_tts granite granite_docling_text granitemoe "
        "granitemoehybrid granitemoeshared gte hrm_text hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v3 hy_v4 "
        "hyperclovax jais2 jina_embeddings_v3 kolibri1 kyutai_speech_to_text laguna lara_mini lasr_encoder lfm2 "
        "lfm2_moe lfm3 llama mellum mimi mimo_v2_flash minicpm3 minimax minimax_m2 ministral mistral mixtral "
        "mllama_text_model modernbert modernbert-decoder moshi muse_glimmer_assistant nemotron neomme neucodec "
        "nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe paddleocr_vl_text persimmon phi phi3 phi4_multimodal phimoe "
        "pocket_tts qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text "
        "qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_text qwen3_vl_moe_text "
        "qwen3_vl_text qwen4_exp_text recurrent_gemma seed_oss smollm3 solar_open stablelm starcoder2 t5_gemma_module "
        "t5gemma2_decoder t5gemma2_text timesfm2_5 ultrabert unlimited_ocr_text vaultgemma voxtral_realtime_encoder "
        "voxtral_realtime_text xcodec2 zaya"
    ),
    "interleaved": (
        "axk1 axk2 bailing_hybrid blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher codegen "
        "cohere cohere2 cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 ernie4_5 ernie4_5_moe glm glm4 "
        "glm4_moe_lite glm4v_text glm_moe_dsa glm_ocr_text gptj helium hy_v4_vl_text llama4_text longcat_flash "
        "mistral_large4_text moonshine_streaming youtu"
    ),
})  # fmt: skip
IMAGES = {"dinov3_vit"}

# Multi-head latent attention: a head is a part that turns, of qk_rope_head_dim channels, and one that does not.
LATENT = set((
    "axk1 axk2 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa longcat_flash minicpm3 "
    "mistral_large4_text youtu"
).split())  # fmt: skip
SAYS = {"axk1", "deepseek_v3", "glm4_moe_lite", "youtu"}  # `rope_interleave` says the layout, and is true by default
LAST = {"deepseek_v4"}  # the last channels turn, not the first

# Positions (t, h, w) whose axes take turns with the pairs, whatever the file says.
WOVEN = set((
    "cosmos3_edge_text hy_v4_vl_text qwen3_5_moe_text qwen3_5_text qwen3_omni_moe_text qwen3_vl_moe_text "
    "qwen3_vl_text qwen4_exp_text"
).split())  # fmt: skip
TWO_ANGLES = {"hunyuan_vl_text"}  # a pair's channels turn with axes of their own

# What files mean that leave a field out, where it is not 10000, the width over the heads, or the whole head.
RATES = _by_model({
    1000.0: "nomic_bert",
    20000.0: "jina_embeddings_v3",
    100000.0: "helium",
    150000.0: "gpt_oss",
    160000.0: "gte",
    500000.0: (
        "bitnet blt_global_transformer blt_local_decoder blt_local_encoder cohere csm csm_depth_decoder_model "
        "ernie4_5 ernie4_5_moe evolla flex_olmo llama4_text mllama_text_model muse_glimmer_assistant "
        "paddleocr_vl_text qwen3_vl_moe_text qwen3_vl_text"
    ),
    1000000.0: (
        "cwm emu3_text_model lfm2 lfm2_moe minimax mixtral phimoe qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text "
        "qwen3_omni_moe_text solar_open"
    ),
    2000000.0: "smollm3",
    5000000.0: "minimax_m2",
    6000000.0: "bailing_hybrid",
    10000000.0: "longcat_flash",
    11158840.0: "hy_v3",
    12000000.0: "apertus apertus1p5_text",
    100000000.0: "cosmos3_edge_text",
})  # fmt: skip
SIZES = _by_model({
    64: "gpt_oss gradium_phonon_tts hy_v4 hy_v4_vl_text neomme neucodec pocket_tts voxtral_realtime_encoder xcodec2",
    80: "timesfm2_5",
    128: (
        "afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder dia_encoder ernie4_5 flint glm glm4 helium hrm_text "
        "hy_v3 kolibri1 laguna lara_mini lfm3 llama4_text mellum minimax_m2 muse_glimmer_assistant paddleocr_vl_text "
        "qwen3 qwen3_omni_moe_talker_code_predictor qwen3_vl_text seed_oss solar_open zaya"
    ),
    192: "mimo_v2_flash",
    256: (
        "diffusion_gemma_text dory gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text "
        "qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text t5_gemma_module t5gemma2_decoder t5gemma2_text "
        "vaultgemma"
    ),
    512: "deepseek_v4",
})  # fmt: skip
SHARES = _by_model({
    0.25: "gpt_neox qwen3_5_moe_text qwen3_5_text qwen3_next stablelm",
    0.5: "bamba glm glm4 glm4_moe glm4v_moe_text glmasr_encoder nemotron persimmon phi recurrent_gemma",
    0.8: "moonshine_streaming",
})  # fmt: skip
SIZES_OF_GLOBAL_LAYERS = _by_model({512: "diffusion_gemma_text gemma4_text gemma4_unified_text"})

# Sections of positions (t, h, w) where a file has none.
SECTIONS = _by_model({
    (8, 12, 12): "glm4v_moe_text glm4v_text glm_image_text glm_ocr_text",
    (11, 11, 10): "qwen3_5_moe_text qwen3_5_text qwen4_exp_text",
    (16, 24, 24): "paddleocr_vl_text qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text",
    (24, 20, 20): (
        "cosmos3_edge_text hy_v4_vl_text qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text"
    ),
})  # fmt: skip

# Files of before rope_parameters: the fields of the rates in layers of global and of local attention, and the rates
# where these are left out. What stretches is of the layers named.
TWO_RATES = {
    "gemma3_text": (("rope_theta", 1e6), ("rope_local_base_freq", 1e4), ("full_attention",)),
    "gemma3n_text": (("rope_theta", 1e6), ("rope_local_base_freq", 1e4), ("full_attention",)),
    "modernbert": (("global_rope_theta", 1.6e5), ("local_rope_theta", 1e4), ("full_attention", "sliding_attention")),
    "olmo3": (("rope_theta", 5e5), ("rope_theta", 5e5), ("full_attention",)),
}
TWO_RATES["modernbert-decoder"] = TWO_RATES["modernbert"]

# Rope types under the names of older files.
OLDER_KINDS = {model: {"su": "longrope", "yarn": "longrope"} for model in ("phi3", "phi4_multimodal")}
