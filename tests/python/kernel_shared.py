"""What tests of pegen_kernels on NumPy share."""
import numpy

FAST = {"targets": "native", "dtypes": "float32"}


def rows(*shape, seed=1, dtype="float32"):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(dtype)


def rope(x, positions, base=10000.0):
    """RoPE of x [B,H,N,D] in float64."""
    d = x.shape[-1]
    angle = numpy.asarray(positions)[..., None, :, :1] * base ** (-2 * numpy.arange(d // 2) / d)
    even, odd = x[..., 0::2].astype(float), x[..., 1::2].astype(float)
    out = numpy.empty(x.shape)
    out[..., 0::2] = numpy.cos(angle) * even - numpy.sin(angle) * odd
    out[..., 1::2] = numpy.sin(angle) * even + numpy.cos(angle) * odd
    return out
