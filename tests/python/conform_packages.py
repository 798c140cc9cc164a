"""Small packages as engines. A function of a package's name has its engines: (engine, cases that are right, what others
follow)."""
import ctypes
import os

import numpy
import torch

from pegen_kernels.conform.cases import words


def follows(**others):
    """What a report says of these conventions, each followed and asked for."""
    return "; ".join(f"{words(name, followed)}, not {words(name, asked)}" for name, (followed, asked) in others.items())


LEFT = follows(mask=("top-left", "bottom-right"))
HALVES, PAIRS = (follows(layout=x) for x in (("split", "interleaved"), ("interleaved", "split")))
COUNTED = follows(positions=("counted", "given"))
MIDDLE = "origin 40, not origin 0"  # of a call of 80 tokens
ALIBI = "ALiBi, 3 heads;ALiBi, 4 heads;ALiBi, 5 heads;ALiBi, 6 heads;ALiBi, 8 heads;ALiBi, 12 heads;ALiBi, 20 heads;" \
        "ALiBi, 40 heads;ALiBi, 71 heads;ALiBi, 6 heads, cache;ALiBi, 12 heads, decode"  # fmt: skip


def bias_of(make):
    """scaled_dot_product_attention with a bias [H,1 or N,M], masked from the bottom right."""

    def engine(a, asked):
        n, m = a["q"].shape[2], a["k"].shape[2]
        bias = make(a, asked, n, m)
        seen = torch.ones(n, m, dtype=torch.bool).tril(m - n) if asked["mask"] != "none" else torch.ones(n, m).bool()
        bias = bias.expand(-1, n, -1).masked_fill(~seen, -torch.inf)
        scale = 1.0 if asked["scale"] == "1" else None
        sdpa = torch.nn.functional.scaled_dot_product_attention
        return sdpa(a["q"], a["k"], a["v"], attn_mask=bias[None].float(), scale=scale)

    return engine


def in_numpy(engine):
    return lambda a, asked: engine({name: x.numpy() for name, x in a.items()}, asked)


def rotary_embedding_torch():
    from rotary_embedding_torch import RotaryEmbedding

    def engine(a, asked):
        made = RotaryEmbedding(asked["head_dim"], theta=asked["base"], use_xpos=asked["encoding"] == "xpos")
        if made.use_xpos:
            return made.rotate_queries_and_keys(a["q"], a["k"])
        return [made.rotate_queries_or_keys(a[x], offset=int(a["positions"][0])) for x in "qk"]

    right = "pairs, positions from 0;pairs, positions from 0, base 500000;pairs, positions from 100;pairs, decode"
    wrong = {"halves, positions from 100": PAIRS, "xPos, positions from 0": MIDDLE}
    return {"RotaryEmbedding": (engine, right, wrong)}


def x_transformers():
    from x_transformers import x_transformers as x

    def rotary(a, asked):
        scaling = {"linear": "interpolation_factor", "ntk": "base_rescale_factor"}.get(asked.get("scaling"))
        made = x.RotaryEmbedding(asked["head_dim"], asked["encoding"] == "xpos", base=asked["base"],
                                 **({scaling: asked["factor"]} if scaling else {}))  # fmt: skip
        angles, scale = made(a["positions"])
        return [x.apply_rotary_pos_emb(a["q"], angles, scale), x.apply_rotary_pos_emb(a["k"], angles, scale**-1)]

    def alibi(a, asked, n, m):
        return x.AlibiPositionalBias(asked["heads"])(n, m)

    def t5(a, asked, n, m):
        """As its Attention makes it, which scales q k."""
        scale = 1.0 if asked["scale"] == "1" else a["q"].shape[-1] ** 0.5
        made = x.RelativePositionBias(scale, asked["causal"], asked.get("num_buckets", 32),
                                      asked.get("max_distance", 128), asked["heads"])  # fmt: skip
        made.relative_attention_bias.weight.data = a["relative_attention_bias"]
        return made(n, m).detach()

    return {
        "RotaryEmbedding": (rotary, "pairs;pairs, positions by sequence;pairs, fractional positions;linear, pairs;"
                            "NTK, pairs;xPos, origin 56, positions from 100",
                            {"halves": PAIRS, "xPos, positions from 0": MIDDLE}),
        "AlibiPositionalBias": (bias_of(alibi), f"{ALIBI};ALiBi, all keys", {}),
        "RelativePositionBias": (bias_of(t5), "T5, encoder;T5, encoder, 64 buckets;T5, decoder;T5, cache;T5, decode",
                                 {"T5, encoder, scaled scores": follows(bias=("grown", "beside"))}),
    }  # fmt: skip


def torchscale():
    from torchscale.component.xpos_relative_position import XPOS

    def engine(a, asked):
        made, offset = XPOS(asked["head_dim"], asked["scale_base"]), int(a["positions"][0])
        return [made(a[x].flatten(0, 1), offset, downscale=x == "k").view_as(a[x]) for x in "qk"]

    return {"XPOS": (engine, "xPos, origin 56, positions from 100", {"xPos, positions from 0": MIDDLE})}


def esm():
    from esm.rotary_embedding import RotaryEmbedding

    def engine(a, asked):
        turned = RotaryEmbedding(asked["head_dim"])(a["q"].flatten(0, 1), a["k"].flatten(0, 1))
        return [x.view_as(a["q"]) for x in turned]

    wrong = {"halves, positions from 100": COUNTED, "pairs, positions from 0": HALVES}
    return {"RotaryEmbedding": (engine, "halves, positions from 0", wrong)}


def curated_transformers():
    from curated_transformers.layers import AttentionLinearBiases, QueryKeyRotaryEmbeddings

    def rotary(a, asked):
        fraction = (asked.get("rotary_dim") or asked["head_dim"]) / asked["head_dim"]
        made = QueryKeyRotaryEmbeddings(base=asked["base"], fraction=fraction, head_width=asked["head_dim"])
        positions = torch.broadcast_to(a["positions"], (2, a["q"].shape[2])).contiguous()
        return made(query=a["q"], key=a["k"], positions=positions)

    def alibi(a, asked, n, m):
        causal = asked["mask"] != "none"
        made = AttentionLinearBiases(n_attention_heads=asked["heads"], is_causal=causal, is_inverted=False)
        return made.calculate_biases(m)[0]

    right = "halves;halves, base 500000;halves, positions by sequence;halves, decode of sequences;" \
            "halves, 32 of 80 channels;halves, 64 of 256 channels"  # fmt: skip
    return {"QueryKeyRotaryEmbeddings": (rotary, right, {"pairs": HALVES}),
            "AttentionLinearBiases": (bias_of(alibi), f"{ALIBI};ALiBi, all keys", {})}  # fmt: skip


def equinox():
    import jax

    from equinox.nn import RotaryPositionalEmbedding

    def engine(a, asked):
        turn = jax.vmap(jax.vmap(RotaryPositionalEmbedding(asked["head_dim"], asked["base"])))
        return [numpy.asarray(turn(a[x])) for x in "qk"]

    # Its cache of cosines goes by the number of channels: the first layer's base is that of all layers.
    wrong = {"halves, positions from 100": COUNTED, "halves, positions from 0, base 500000":
             "base 10000.0, not base 500000.0", "pairs, positions from 0": HALVES}  # fmt: skip
    return {"RotaryPositionalEmbedding": (in_numpy(engine), "halves, positions from 0", wrong)}


def keras_hub():
    os.environ["KERAS_BACKEND"] = "jax"
    from keras_hub.layers import AlibiBias, RotaryEmbedding, SinePositionEncoding

    def rotary(a, asked):
        rule = {"none": "linear", "ntk": "dynamic"}.get(asked.get("scaling", "none"), asked.get("scaling"))
        made = RotaryEmbedding(asked["base"], asked.get("factor", 1.0), rule, asked.get("beta_fast", 32.0),
                               asked.get("beta_slow", 1.0), asked.get("original_max_position", 4096),
                               asked.get("truncate", True), sequence_axis=2)  # fmt: skip
        return [numpy.asarray(made(a[x], positions=a["positions"])) for x in "qk"]

    def alibi(a, asked, n, m):
        return torch.tensor(numpy.asarray(AlibiBias()(numpy.zeros((1, asked["heads"], n, m), "float32"))))[0]

    def added(a, asked):
        return a["x"] + numpy.asarray(SinePositionEncoding(asked["base"])(a["x"], positions=a["positions"]))

    right = "halves;halves, base 500000;halves, positions by sequence;halves, fractional positions;linear;YaRN;" \
            "YaRN, whole pairs;YaRN, turns 64 and 2"  # fmt: skip
    return {"RotaryEmbedding": (in_numpy(rotary), right, {"pairs": HALVES, "NTK": follows(scaling=("divided", "ntk"))}),
            "AlibiBias": (bias_of(alibi), ALIBI, {"ALiBi, all keys": follows(direction=("signed", "distance"))}),
            "SinePositionEncoding": (in_numpy(added), "sums, sine and cosine by turns",
                                     {"sums": follows(arrangement=("mixed", "axes"))})}  # fmt: skip


def executorch():
    """Its Llama example, whose tables are of 2100 positions."""
    from executorch.examples.models.llama import rope

    def pairs(a, asked):
        more = {"use_scaled": True, "scale_factor": asked["factor"]} if "factor" in asked else {}
        more |= {"high_freq_factor": asked["high_freq_factor"]} if "high_freq_factor" in asked else {}
        tables = rope.precompute_freqs_cis(asked["head_dim"], 2100, asked["base"], **more)
        rows = rope.apply_rotary_emb(*(a[x].transpose(1, 2) for x in "qk"), *(x[a["positions"]] for x in tables))
        return [x.transpose(1, 2) for x in rows]

    def halves(a, asked):
        more = {"attention_factor": asked["attention_factor"]} if "factors" in asked else {}
        more |= {f"{x}_factor": a[x].tolist() for x in ("short", "long") if x in a}
        more |= {"original_max_pos": asked["original_max_position"]} if "factors" in asked else {}
        fraction = (asked.get("rotary_dim") or asked["head_dim"]) / asked["head_dim"]
        tables = rope.hf_precompute_freqs_cis(asked["head_dim"], 2100, asked.get("base", 1e4), fraction, **more)
        return rope.hf_apply_rotary_emb(a["q"], a["k"], *(x[a["positions"]][None] for x in tables))

    right = "halves;halves, 32 of 80 channels;longrope, beyond the trained length;" \
            "longrope, beyond the trained length, 96 of 128 channels"  # fmt: skip
    wrong = {"longrope, within the trained length": follows(factors=("long", "short"))}
    return {"precompute_freqs_cis": (pairs, "pairs;pairs, base 500000;llama3, pairs", {"halves": PAIRS}),
            "hf_precompute_freqs_cis": (halves, right, wrong)}  # fmt: skip


# ---- ONNX: two implementations of its operators, and operators of ONNX Runtime's own ----


def onnx_model(op, given, outputs, domain="", opset=25, **attributes):
    from onnx import helper

    node = helper.make_node(op, [name if x is not None else "" for name, x in given.items()], outputs, domain=domain,
                            **attributes)  # fmt: skip
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for name, x in given.items() if x is not None]  # fmt: skip
    graph = helper.make_graph([node], op, infos, [helper.make_tensor_value_info(x, 1, None) for x in outputs])
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def onnx_rotary(run):
    def engine(a, asked):
        n = asked.get("rotary_dim") or asked["head_dim"]
        positions = numpy.broadcast_to(a["positions"], (2, a["q"].shape[2])).copy()
        angles = numpy.arange(positions.max() + 1)[:, None] * asked["base"] ** (-numpy.arange(0, n, 2) / n)
        cos, sin = (f(angles).astype("float32") for f in (numpy.cos, numpy.sin))
        more = {"rotary_embedding_dim": n} if n < asked["head_dim"] else {}
        return [run("RotaryEmbedding", {"x": a[x], "cos": cos, "sin": sin, "p": positions}, ["out"],
                    interleaved=int(asked["layout"] == "interleaved"), **more)[0] for x in "qk"]  # fmt: skip

    return in_numpy(engine)


def bias_by_distance(asked, n, m):
    if asked["encoding"] != "alibi":
        return None
    import conform_test

    slopes = numpy.array([conform_test.slope(h, asked["heads"]) for h in range(asked["heads"])])
    distance = abs(numpy.arange(m) - (numpy.arange(n) + m - n)[:, None])
    return (-slopes[:, None, None] * distance)[None].astype("float32")


def onnx_attention(run, is_cached):
    def engine(a, asked):
        n, m = a["q"].shape[2], a["k"].shape[2]
        past = (m - n) * is_cached
        given = {"q": a["q"], **{x: a[x][:, :, past:] for x in "kv"}, "mask": bias_by_distance(asked, n, m)}
        given |= {f"past_{x}": a[x][:, :, :past] if is_cached else None for x in "kv"}
        given |= {"lengths": a["lengths"].astype("int64")} if "lengths" in a else {}
        more, window = {"scale": 1 / 16} if asked["scale"] == "1/16" else {}, asked.get("window", 0)
        more |= {"left_window_size": window - 1} if window else {}
        more |= {"right_window_size": window - 1} if window and asked["mask"] == "none" else {}
        outputs = ["out", "keys", "values"] if is_cached else ["out"]
        return run("Attention", given, outputs, is_causal=int(asked["mask"] != "none"),
                   softcap=float(asked.get("softcap", 0)), **more)[0]  # fmt: skip

    return in_numpy(engine)


ROTARY = "halves;pairs;pairs, positions by sequence;pairs, decode of sequences;halves, 32 of 80 channels;" \
         "pairs, 64 of 128 channels"  # fmt: skip
ENDS = "attention;causal;causal, scale 1/16;causal, values of 64 channels;groups of heads;softcap;softcap, causal;" \
       "softcap, scale 1/16;softcap, ALiBi;ALiBi, 6 heads;ALiBi, 71 heads;ALiBi, groups of heads"  # fmt: skip
PAST = "causal, cache;causal, decode;groups of heads, cache;softcap, decode;ALiBi, 6 heads, cache"
LENGTHS = "lengths;lengths, causal;lengths, decode;lengths, ALiBi"
WINDOWS = "window;window of both directions;ALiBi, window"


def onnx():
    from onnx.reference import ReferenceEvaluator

    def run(op, given, outputs, **attributes):
        model = onnx_model(op, given, outputs, **attributes)
        return ReferenceEvaluator(model).run(None, {name: x for name, x in given.items() if x is not None})

    left = dict.fromkeys(PAST.split(";"), LEFT)
    return {"RotaryEmbedding": (onnx_rotary(run), ROTARY, {}),
            "Attention": (onnx_attention(run, False), f"{ENDS};{WINDOWS};{LENGTHS};lengths, window", left),
            "Attention, past_key": (onnx_attention(run, True), f"{ENDS};{PAST};{WINDOWS};window, cache;window, decode;"
                                    "softcap, window, cache", {})}  # fmt: skip


def onnxruntime():
    import onnxruntime as runtime

    def run(op, given, outputs, **attributes):
        options = runtime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        model = onnx_model(op, given, outputs, **{"opset": 24, **attributes}).SerializeToString()
        session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return session.run(None, {name: x for name, x in given.items() if x is not None})

    def wide(x):
        return numpy.ascontiguousarray(x.swapaxes(1, 2)).reshape(len(x), x.shape[2], -1)

    def high(x, heads):
        return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    def grouped(a, asked):
        """GroupQueryAttention of a single sequence, with the keys before its queries as its past."""
        n, m = a["q"].shape[2], a["k"].shape[2]
        given = {"q": wide(a["q"]), **{x: wide(a[x][:, :, m - n :]) for x in "kv"}}
        given |= {f"past_{x}": a[x][:, :, : m - n].copy() for x in "kv"}
        given |= {"last": numpy.array([m - 1], "int32"), "total": numpy.array(m, "int32"), "cos": None, "sin": None,
                  "positions": None, "bias": bias_by_distance(asked, n, m)}  # fmt: skip
        given |= {"sinks": a["sinks"]} if asked.get("sink") == "logit" else {}
        while list(given.values())[-1] is None:
            given.popitem()
        more = {"softcap": asked["softcap"]} if "softcap" in asked else {}
        more |= {"local_window_size": asked["window"]} if "window" in asked else {}
        more |= {"smooth_softmax": 1} if asked.get("sink") == "zero" else {}
        heads = a["q"].shape[1]
        out = run("GroupQueryAttention", given, ["out", "keys", "values"], domain="com.microsoft", num_heads=heads,
                  kv_num_heads=a["k"].shape[1], scale=1 / 16 if asked["scale"] == "1/16" else 0.0, **more)  # fmt: skip
        return high(out[0], heads)

    def each(a, asked):
        ends = zip(a.get("starts", [0, 0, 0]), a.get("lengths", [a["k"].shape[2]] * 3))
        parts = [{"q": a["q"][i : i + 1], **{x: a[x][i : i + 1, :, start:end] for x in "kv"}}
                 for i, (start, end) in zip(range(len(a["q"])), ends)]  # fmt: skip
        return numpy.concatenate([grouped({**a, **part}, asked) for part in parts])

    def multi_head(a, asked):
        heads = a["q"].shape[1]
        out = run("MultiHeadAttention", {x: wide(a[x]) for x in "qkv"}, ["out"], domain="com.microsoft",
                  num_heads=heads, unidirectional=1)  # fmt: skip
        return high(out[0], heads)

    left = dict.fromkeys(PAST.split(";"), LEFT)
    return {
        "RotaryEmbedding": (onnx_rotary(run), ROTARY, {}),
        "Attention": (onnx_attention(run, False), f"{ENDS};{LENGTHS}", left),
        "Attention, past_key": (onnx_attention(run, True), f"{ENDS};{PAST}", {}),
        "GroupQueryAttention": (
            in_numpy(each), f"{PAST};causal;window;window, cache;window, decode;softcap, window, cache;softcap, sink;"
            "softcap, ALiBi;sink;sink, groups of heads;sink, window, cache;sink, ALiBi;softmax plus 1;ALiBi, 6 heads;"
            "ALiBi, window;lengths, causal;lengths, decode;lengths, window;lengths, ALiBi;padding before", {}),
        "MultiHeadAttention, unidirectional": (in_numpy(multi_head), "causal;causal, decode",
                                               {"causal, cache": follows(mask=("last free", "bottom-right"))}),
    }  # fmt: skip


def libggml():
    """Functions of C: ggml_rope_ext, ggml_rope_multi, ggml_flash_attn_ext."""
    import libggml as package

    folder = os.path.join(os.path.dirname(package.__file__), "lib64")
    library = [ctypes.CDLL(os.path.join(folder, f"libggml-{x}.so"), ctypes.RTLD_GLOBAL) for x in ("base", "cpu")]

    class Memory(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    kinds = {"p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_int64, "f": ctypes.c_float, "m": Memory,
             "4": ctypes.c_int * 4, "-": None}  # fmt: skip

    def function(name, result, arguments):
        of = getattr(library[name in ("graph_compute_with_ctx", "cpu_init")], f"ggml_{name}")
        of.restype, of.argtypes = kinds[result], [kinds[x] for x in arguments]
        return of

    function("cpu_init", "-", "")()
    init, new, data = (
        function("init", "p", "m"),
        function("new_tensor_4d", "p", "pillll"),
        function("get_data", "p", "p"),
    )
    rope, multi = function("rope_ext", "p", "ppppiiiffffff"), function("rope_multi", "p", "ppppi4iiffffff")
    flash, add_sinks = function("flash_attn_ext", "p", "pppppfff"), function("flash_attn_ext_add_sinks", "-", "pp")
    graph, expand = function("new_graph", "p", "p"), function("build_forward_expand", "-", "pp")
    compute, free = function("graph_compute_with_ctx", "i", "ppi"), function("free", "-", "p")

    def run(make, shape):
        """make: from a function that puts an array into the context, and the context, to the result."""
        context = init(Memory(1 << 24, None, False))

        def put(x):
            x = numpy.ascontiguousarray(x)
            sizes = [*x.shape[::-1], 1, 1, 1][:4]
            tensor = new(context, {"float32": 0, "float16": 1, "int32": 26}[str(x.dtype)], *sizes)
            ctypes.memmove(data(tensor), x.ctypes.data, x.nbytes)
            return tensor

        result, todo, out = make(put, context), graph(context), numpy.empty(shape, "float32")
        expand(todo, result)
        compute(context, todo, 1)
        ctypes.memmove(out.ctypes.data, data(result), out.nbytes)
        free(context)
        return out.swapaxes(1, 2)

    def rotary(a, asked):
        """Scaling as llama.cpp passes it."""
        p, scaling, count = (
            a["positions"].astype("int32"),
            asked.get("scaling"),
            asked.get("rotary_dim") or asked["head_dim"],
        )
        amplitude = asked.get("attention_factor", 1.0) or 1.0
        if scaling == "yarn" and asked["attention_factor"]:
            amplitude /= 1 + 0.1 * numpy.log(asked["factor"])
        scale = 1 / asked["factor"] if scaling else 1.0
        rule = (asked.get("original_max_position", 0), asked.get("base", 1e4), scale, float(scaling == "yarn"),
                amplitude, asked.get("beta_fast", 32.0), asked.get("beta_slow", 1.0))  # fmt: skip

        def make(x, put, context):
            rows = put(x.swapaxes(1, 2))
            if "axes" in asked:
                sections = (ctypes.c_int * 4)(*asked["sections"], 0)
                mode = {"sections": 8, "woven": 40}[asked["arrangement"]]
                at = put(numpy.concatenate([*p.T, p.T[0]]))
                return multi(context, rows, at, None, 2 * sum(asked["sections"]), sections, mode, *rule)
            factors = put(a[asked["factors"]].astype("float32")) if "factors" in asked else None
            mode = 2 if asked["layout"] == "split" else 0
            return rope(context, rows, put(p), factors, count, mode, *rule)

        shape = [a["q"].shape[i] for i in (0, 2, 1, 3)]
        return [run(lambda put, context: make(a[x], put, context), shape) for x in "qk"]  # noqa: B023

    def attention(a, asked):
        (b, h, n, d), m = a["q"].shape, a["k"].shape[2]
        behind = (numpy.arange(n) + m - n)[:, None] - numpy.arange(m)
        seen = ((behind >= 0) | (asked["mask"] == "none")) & (abs(behind) < asked.get("window", m + n))
        is_alibi = asked["encoding"] == "alibi"
        bias = numpy.where(seen, -abs(behind) * is_alibi, -numpy.inf).astype("float16")

        def make(put, context):
            scale = 1 / 16 if asked["scale"] == "1/16" else d**-0.5
            result = flash(
                context, *(put(a[x]) for x in "qkv"), put(bias), scale, 8.0 * is_alibi, asked.get("softcap", 0)
            )
            if asked.get("sink") == "logit":
                add_sinks(result, put(a["sinks"]))
            return result

        return run(make, (b, n, h, a["v"].shape[-1]))

    scaled = "linear;linear, pairs;YaRN, whole pairs;YaRN, pairs;YaRN, pairs, temperature 1;YaRN, turns 64 and 2;" \
             "YaRN, temperature 1.26;YaRN, 64 of 128 channels;longrope, beyond the trained length;" \
             "longrope, beyond the trained length, pairs;longrope, within the trained length"  # fmt: skip
    return {
        "ggml_rope_ext": (in_numpy(rotary), f"halves;pairs;halves, negative positions;halves, 32 of 80 channels;"
                          f"pairs, 64 of 128 channels;{scaled}",
                          {"YaRN": follows(truncate=(True, False)),
                           "halves, fractional positions": follows(positions=("floored", "given"))}),
        "ggml_rope_multi": (in_numpy(rotary), "M-RoPE;M-RoPE, woven;M-RoPE, woven, 64 of 256 channels",
                            {"M-RoPE, pairs, 64 of 128 channels": HALVES}),
        "ggml_flash_attn_ext": (in_numpy(attention), f"{ENDS};{PAST};{ALIBI};{WINDOWS};window, cache;sink;"
                                "sink, all keys;sink, groups of heads;sink, window, cache;sink, ALiBi;softcap, sink;"
                                "softcap, window, cache;causal, more queries than keys;ALiBi, all keys", {}),
    }  # fmt: skip


PACKAGES = (rotary_embedding_torch, x_transformers, torchscale, esm, curated_transformers, equinox, keras_hub,
            executorch, onnx, onnxruntime, libggml)  # fmt: skip
