"""The structs of pegen/pegen.h and DLPack for the benchmarks in this folder, by ctypes."""
import ctypes as c


class DLTensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


class GradArgs(c.Structure):
    _fields_ = (
        [("struct_size", c.c_uint32), ("flags", c.c_uint32)]
        + [(name, c.POINTER(DLTensor)) for name in ("q_out", "k_out", "out", "lse", "q", "k", "v")]
        + [(name, c.POINTER(c.POINTER(DLTensor))) for name in ("operands", "inputs")]
        + [(name, c.POINTER(DLTensor)) for name in ("positions", "k_positions")]
        + [("table", c.c_void_p), ("table_bytes", c.c_size_t)]
    )


class Args(c.Structure):
    _fields_ = (
        [("struct_size", c.c_uint32), ("n_operands", c.c_int32)]
        + [(name, c.POINTER(DLTensor)) for name in ("q", "k", "v", "q_out", "k_out", "out", "positions", "k_positions")]
        + [
            ("operands", c.POINTER(c.POINTER(DLTensor))),
            ("workspace", c.c_void_p),
            ("table", c.c_void_p),
            ("table_bytes", c.c_size_t),
            ("workspace_bytes", c.c_size_t),
            ("inputs", c.POINTER(c.POINTER(DLTensor))),
            ("n_inputs", c.c_int32),
            ("causal", c.c_int32),
            ("scale", c.c_double),
            ("q_scale", c.POINTER(DLTensor)),
            ("k_scale", c.POINTER(DLTensor)),
            ("grad", c.POINTER(GradArgs)),
            ("lse", c.POINTER(DLTensor)),
            ("split_keys", c.c_int64),
        ]
        + [(name, c.POINTER(DLTensor)) for name in ("cu_seqlens", "k_cu_seqlens", "block_table", "lengths", "slots")]
        + [(name, c.POINTER(DLTensor)) for name in ("v_out", "v_scale", "q_norm", "k_norm")]
        + [("norm_epsilon", c.c_double), ("origin", c.POINTER(DLTensor))]
    )


class Operand(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("doc", c.c_char_p),
        ("units", c.c_char_p),
        ("initializer", c.c_char_p),
        ("rank", c.c_int32),
        ("shape", c.POINTER(c.c_int64)),
        ("dimension", c.c_void_p),
    ]


class Kernel(c.Structure):
    """The beginning of pegen_kernel."""

    _fields_ = (
        [("struct_size", c.c_uint32), ("abi_version", c.c_uint32)]
        + [(name, c.c_char_p) for name in ("name", "doc", "digest", "options", "targets")]
        + [
            ("dtypes", c.c_uint32),
            ("head_dim", c.c_int32),
            ("out_dim", c.c_int32),
            ("n_axes", c.c_int32),
            ("axes", c.c_void_p),
            ("heads", c.c_int32),
            ("skip_tokens", c.c_int32),
            ("grid", c.c_void_p),
            ("n_operands", c.c_int32),
            ("operands", c.POINTER(Operand)),
        ]
    )


def pointers(tensors):
    """An array of pointers to DLTensors: operands, inputs."""
    return (c.POINTER(DLTensor) * max(1, len(tensors)))(*[c.pointer(t) for t in tensors])
