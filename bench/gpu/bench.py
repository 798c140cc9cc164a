#!/usr/bin/env python3
"""Time of kernels on a GPU, beside a device-to-device copy of the same bytes in the same run.

    bench/gpu/bench.py --pegen build/pegen --library build/runtime/libpegen.so [--dtype bf16] [SPEC:B,H,N,D ...]

Needs the CUDA driver and a C compiler; where PyTorch (and Triton) are installed, rotary embeddings in eager PyTorch,
torch.compile and Triton are timed on the same shapes. A call encodes q and k in place, [B,N,H,D] memory; sets of
buffers are cycled so that no call finds its rows in the L2 cache.

It was written on a machine without a GPU and has not run on one yet.
"""
import argparse
import ctypes as c
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from interface import Args, DLTensor, Kernel, pointers

SPECS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "specs")
DEFAULT = ["rope:8,32,4096,128", "geope2d:64,12,196,64", "geope3d:64,12,196,64", "care:64,12,196,64"]
DTYPES = {"f32": (2, 32), "bf16": (4, 16), "f16": (2, 16)}  # DLPack code, bits
CYCLED_BYTES, MOST_SETS = 512 << 20, 64
KDLCUDA, FLOAT32 = 2, (2, 32)


class Driver:
    """The few calls of libcuda that are needed; an error ends the program with its name."""

    def __init__(self):
        try:
            self.library = c.CDLL("libcuda.so.1")
        except OSError:
            sys.exit("no CUDA driver: libcuda.so.1 cannot be loaded")
        self("cuInit", 0)
        count = c.c_int()
        self("cuDeviceGetCount", c.byref(count))
        if not count.value:
            sys.exit("no CUDA device")
        self.device, context = c.c_int(), c.c_void_p()
        self("cuDeviceGet", c.byref(self.device), 0)
        self("cuDevicePrimaryCtxRetain", c.byref(context), self.device)
        self("cuCtxSetCurrent", context)

    def __call__(self, name, *arguments):
        error = getattr(self.library, name)(*arguments)
        if error:
            text = c.c_char_p()
            self.library.cuGetErrorName(error, c.byref(text))
            sys.exit(f"{name}: {(text.value or b'?').decode()}")

    def attribute(self, number):
        value = c.c_int()
        self("cuDeviceGetAttribute", c.byref(value), number, self.device)
        return value.value

    def name(self):
        text = c.create_string_buffer(256)
        self("cuDeviceGetName", text, 256, self.device)
        return text.value.decode()

    def upload(self, data, size=None):
        """Memory of `size` bytes that repeats `data`; no size: as long as the data."""
        size = size or len(data)
        memory = c.c_uint64()
        self("cuMemAlloc_v2", c.byref(memory), c.c_size_t(size))
        for at in range(0, size, len(data)):
            self("cuMemcpyHtoD_v2", c.c_uint64(memory.value + at), data, c.c_size_t(min(len(data), size - at)))
        return memory.value

    def free(self, memory):
        self("cuMemFree_v2", c.c_uint64(memory))

    def seconds(self, calls, rounds=20):
        """Median over rounds of the time of one of `calls`, each round running all of them."""
        begin, end, times = c.c_void_p(), c.c_void_p(), []
        self("cuEventCreate", c.byref(begin), 0)
        self("cuEventCreate", c.byref(end), 0)
        for _ in range(rounds + 3):
            self("cuEventRecord", begin, None)
            for call in calls:
                call()
            self("cuEventRecord", end, None)
            self("cuEventSynchronize", end)
            milliseconds = c.c_float()
            self("cuEventElapsedTime", c.byref(milliseconds), begin, end)
            times.append(milliseconds.value * 1e-3 / len(calls))
        return statistics.median(times[3:])


def tensor(memory, dtype, shape, strides=None):
    n = len(shape)
    return DLTensor(
        memory,
        KDLCUDA,
        0,
        n,
        dtype[0],
        dtype[1],
        1,
        (c.c_int64 * n)(*shape),
        (c.c_int64 * n)(*strides) if strides else None,
        0,
    )


def random_rows(dtype):
    """1 MiB or so of numbers in [-1, 1]: zeros would take less power, and clocks depend on power."""
    values = [random.uniform(-1, 1) for _ in range(1 << 18)]
    if dtype == DTYPES["bf16"]:
        return b"".join(struct.pack("<f", x)[2:] for x in values)
    return struct.pack(f"<{len(values)}{'f' if dtype[1] == 32 else 'e'}", *values)


def compile_kernel(pegen, spec, head_dim, chip, folder):
    stem = os.path.join(folder, spec)
    subprocess.run(
        [
            pegen,
            os.path.join(SPECS, spec + ".lua"),
            "-o",
            stem + ".o",
            "--target",
            "native," + chip,
            "-D",
            f"head_dim={head_dim}",
        ],
        check=True,
    )
    subprocess.run([os.environ.get("CC", "cc"), "-shared", stem + ".o", "-o", stem + ".so"], check=True)
    library = c.CDLL(stem + ".so")
    return library, Kernel.in_dll(library, spec + "_kernel")


def time_kernel(driver, runtime, kernel, dtype, shape):
    batch, heads, tokens, dim = shape
    bytes_of_tensor = batch * heads * tokens * dim * dtype[1] // 8
    sets = min(MOST_SETS, max(1, CYCLED_BYTES // (2 * bytes_of_tensor)))
    strides = (tokens * heads * dim, dim, heads * dim, 1)
    positions = (c.c_int32 * (tokens * kernel.n_axes))(
        *[t // (14**a) for t in range(tokens) for a in range(kernel.n_axes)]
    )
    kept = [tensor(driver.upload(bytes(positions)), (0, 32), (tokens, kernel.n_axes))]
    for i in range(kernel.n_operands):
        sizes = kernel.operands[i].shape[: kernel.operands[i].rank]
        count = 1
        for size in sizes:
            count *= size
        values = (c.c_float * count)(*[0.1 + 0.01 * (j % 7) for j in range(count)])
        kept.append(tensor(driver.upload(bytes(values)), FLOAT32, sizes))
    operands = pointers(kept[1:])
    memories, calls, copies, rows = [], [], [], random_rows(dtype)
    for _ in range(sets):
        pair = [driver.upload(rows, bytes_of_tensor) for _ in range(2)]
        memories += pair
        q, k = (tensor(m, dtype, shape, strides) for m in pair)
        args = Args(
            struct_size=c.sizeof(Args),
            n_operands=kernel.n_operands,
            q=c.pointer(q),
            k=c.pointer(k),
            q_out=c.pointer(q),
            k_out=c.pointer(k),
            positions=c.pointer(kept[0]),
            operands=operands,
        )
        kept.append((q, k, args))
        calls.append(lambda args=args: check(runtime, runtime.pegen_launch(c.byref(kernel), None, c.byref(args), None)))
        copies.append(
            lambda a=pair[0], b=pair[1]: driver(
                "cuMemcpyDtoDAsync_v2", c.c_uint64(a), c.c_uint64(b), c.c_size_t(bytes_of_tensor), None
            )
        )
    kernel_time = driver.seconds(calls)
    copy_time = 2 * driver.seconds(copies)  # a call reads and writes two tensors
    for memory in memories:
        driver.free(memory)
    return kernel_time, copy_time, 4 * bytes_of_tensor


def check(runtime, error):
    if error:
        sys.exit(f"pegen_launch: {runtime.pegen_error_name(error).decode()} {runtime.pegen_cuda_error_name().decode()}")


# ---- what others do, on the same shapes --------------------------------------------------


def torch_contenders(dtype_name, shape):
    """(name, function of (q, k)) of rotary embeddings in PyTorch and Triton, where installed."""
    try:
        import torch
    except ImportError:
        return None, []
    if not torch.cuda.is_available():
        return None, []
    batch, heads, tokens, dim = shape
    half = dim // 2
    angle = (
        torch.arange(tokens, device="cuda")[:, None]
        * 10000.0 ** (-torch.arange(half, device="cuda") * 2 / dim)[None, :]
    )
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype_name]
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)

    def rotate(x):  # [B,N,H,D], split halves: the form that eager code is fastest in
        a, b = x[..., :half], x[..., half:]
        c_, s_ = cos[None, :, None, :], sin[None, :, None, :]
        return torch.cat((a * c_ - b * s_, b * c_ + a * s_), dim=-1)

    def eager(q, k):
        return rotate(q), rotate(k)

    contenders = [("PyTorch eager rope", eager), ("torch.compile rope", torch.compile(eager))]
    try:
        contenders.append(("Triton rope, in place", triton_rope(cos, sin)))
    except ImportError:
        pass
    return torch, contenders


def triton_rope(cos, sin):
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(x, cos, sin, tokens, heads, HALF: tl.constexpr, HEADS: tl.constexpr):
        row = tl.program_id(0)
        lane = tl.arange(0, HALF)
        head = tl.arange(0, HEADS)
        token = row % tokens
        at = x + row * heads * 2 * HALF + head[:, None] * 2 * HALF + lane[None, :]
        inside = head[:, None] < heads
        c_, s_ = tl.load(cos + token * HALF + lane), tl.load(sin + token * HALF + lane)
        a, b = tl.load(at, mask=inside).to(tl.float32), tl.load(at + HALF, mask=inside).to(tl.float32)
        tl.store(at, a * c_ - b * s_, mask=inside)
        tl.store(at + HALF, b * c_ + a * s_, mask=inside)

    def run(q, k):
        for x in (q, k):
            kernel[(x.shape[0] * x.shape[1],)](
                x, cos, sin, x.shape[1], x.shape[2], HALF=x.shape[3] // 2, HEADS=triton.next_power_of_2(x.shape[2])
            )

    return run


def time_torch(dtype_name, shape):
    torch, contenders = torch_contenders(dtype_name, shape)
    if not torch:
        return
    batch, heads, tokens, dim = shape
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype_name]
    for name, run in contenders:
        sets = [
            [torch.zeros(batch, tokens, heads, dim, dtype=dtype, device="cuda") for _ in range(2)] for _ in range(4)
        ]
        times = []
        for _ in range(23):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for q, k in sets:
                run(q, k)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3 / len(sets))
        yield name, statistics.median(times[3:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pegen", default="build/pegen")
    parser.add_argument("--library", default="build/runtime/libpegen.so")
    parser.add_argument("--dtype", default="bf16", choices=DTYPES)
    parser.add_argument("cases", nargs="*", default=DEFAULT, help="SPEC:B,H,N,D")
    options = parser.parse_args()
    driver = Driver()
    chip = driver.attribute(75) * 10 + driver.attribute(76)
    target = max((n for n in (75, 80, 86, 89, 90, 100, 120) if n <= chip), default=75)
    runtime = c.CDLL(options.library)
    for name in ("pegen_error_name", "pegen_cuda_error_name"):
        getattr(runtime, name).restype = c.c_char_p
    print(f"{driver.name()}, sm_{chip}, PTX of sm_{target}, {options.dtype}, q and k in place, [B,N,H,D] memory")
    print(f"{'':34} {'shape':>18} {'us':>9} {'MB':>8} {'GB/s':>7} {'copy GB/s':>9} {'of copy':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            spec, sizes = case.split(":")
            shape = tuple(int(size) for size in sizes.split(","))
            library, kernel = compile_kernel(options.pegen, spec, shape[3], f"sm_{target}", folder)
            seconds, copy, size = time_kernel(driver, runtime, kernel, DTYPES[options.dtype], shape)
            print(
                f"{spec:34} {sizes:>18} {seconds * 1e6:9.1f} {size / 1e6:8.1f} "
                f"{size / seconds / 1e9:7.0f} {size / copy / 1e9:9.0f} {copy / seconds:7.3f}"
            )
            for name, other in time_torch(options.dtype, shape) if spec == "rope" else ():
                print(
                    f"  {name:32} {sizes:>18} {other * 1e6:9.1f} {size / 1e6:8.1f} "
                    f"{size / other / 1e9:7.0f} {size / copy / 1e9:9.0f} {copy / other:7.3f}"
                )


if __name__ == "__main__":
    main()
