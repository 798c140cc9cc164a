#!/usr/bin/env python3
"""float8_test.py PEGEN SPEC HOST.c INCLUDES CC [ARM_CC EMULATOR]: float8 outputs, bit by bit.

Every processor target that runs here, against conversions that share nothing with pegen: the nearest of all codes, and
ml_dtypes and PyTorch where they can be imported.
"""
import bisect
import importlib
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

FORMATS = {"f8e4m3": (10, 3, 7, "float8_e4m3fn"), "f8e5m2": (12, 2, 15, "float8_e5m2")}


def magnitudes(fraction_bits, bias, name):
    """Finite magnitudes in the order of their codes."""
    values = []
    for code in range(127):
        exponent, fraction = code >> fraction_bits, code & (1 << fraction_bits) - 1
        if name == "float8_e5m2" and exponent == 31:
            break
        values.append(
            math.ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)
            if exponent
            else math.ldexp(fraction, 1 - bias - fraction_bits)
        )
    return values


def nearest(x, values):
    sign = 0x80 if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return 0x7F
    at = bisect.bisect_left(values, abs(x))
    if at >= len(values):
        return sign | len(values) - 1
    if at and (abs(x) - values[at - 1], at - 1 & 1) < (values[at] - abs(x), at & 1):
        at -= 1
    return sign | at


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def inputs():
    """Every upper half of a float32, what lies beside each, and random patterns."""
    rng = random.Random(1)
    patterns = [half << 16 for half in range(1 << 16)]
    patterns += [(half << 16) + step & 0xFFFFFFFF for half in range(0x3000, 0x4800) for step in (-1, 1)]
    patterns += [rng.getrandbits(32) for _ in range(1 << 15)]
    patterns += [0] * (-len(patterns) % 32)
    return struct.pack(f"<{len(patterns)}I", *patterns)


def libraries(name, values, largest):
    """What others make of them; NaN apart, and cut first, for they do not saturate."""
    for library in ("ml_dtypes", "torch"):
        try:
            module = importlib.import_module(library)
            numpy = importlib.import_module("numpy")
        except ImportError:
            print(f"{library}: cannot be imported here, not compared")
            continue
        cut = numpy.clip(numpy.array(values, numpy.float32), -largest, largest)
        if library == "torch":
            codes = module.from_numpy(cut).to(getattr(module, name)).view(module.uint8).numpy()
        else:
            codes = cut.astype(getattr(module, name)).view(numpy.uint8)
        yield library, codes.tolist()


def main(pegen, spec, host, includes, cc, arm=None, emulator=None):
    data = inputs()
    values = struct.unpack(f"<{len(data) // 4}f", data)
    listed = subprocess.run([pegen, "--target=help"], capture_output=True, text=True, check=True).stdout
    targets = [line.split()[0] for line in listed.splitlines() if line.startswith(("x86-64", "aarch64"))]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for target in targets:
            foreign = target == "aarch64" and emulator
            program, kernel = pathlib.Path(folder, "host"), pathlib.Path(folder, "kernel.o")
            dtypes = ",".join("f32:" + text for text in FORMATS)
            options = ["--target", target, "-D", "rotary_dim=32", "-D", "skip_tokens=1", "--dtype", dtypes]
            subprocess.run([pegen, spec, "-o", kernel, *options], check=True)
            flags = [word for folder in includes.split(":") for word in ("-idirafter", folder)]
            linked = [arm, "-static"] if foreign else [cc]
            built = subprocess.run(
                [*linked, "-std=c11", "-O1", *flags, host, kernel, "-o", program], stderr=subprocess.PIPE
            )
            if built.returncode:
                print(f"{target}: not for this machine, and no compiler or emulator for another")
                continue
            for text, (code, fraction_bits, bias, name) in FORMATS.items():
                finite = magnitudes(fraction_bits, bias, name)
                for scale in (1.0, 0.0625):
                    run = [*([emulator] if foreign else []), program, str(code), str(scale)]
                    result = subprocess.run(run, input=data, capture_output=True)
                    if result.returncode == 27:  # PEGEN_ERROR_PROCESSOR
                        print(f"{target}: this processor does not run it")
                        break
                    scaled = [x / scale for x in values]
                    scaled = [x if not math.isfinite(x) or abs(x) > 3.4e38 else single(x) for x in scaled]
                    wanted = {"the definition": [nearest(x, finite) for x in scaled]}
                    if scale == 1:
                        wanted.update(libraries(name, values, finite[-1]))
                    for who, codes in wanted.items():
                        wrong = [
                            i
                            for i, x in enumerate(scaled)
                            if codes[i] != result.stdout[i] and not (math.isnan(x) and who != "the definition")
                        ]
                        print(f"{target} {text} / {scale}: {len(scaled)} numbers against {who}, {len(wrong)} differ")
                        for i in wrong[:3]:
                            print(f"  {values[i].hex()}: {result.stdout[i]:02x}, expected {codes[i]:02x}")
                        failures += len(wrong) > 0 or len(result.stdout) != len(scaled)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
