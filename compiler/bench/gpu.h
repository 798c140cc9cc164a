/* bench/gpu: `pegen bench SPEC.lua --target sm_90`, a kernel's time on a GPU beside a device-to-device copy.
 *
 * The PTX is launched as programs launch it (pegen/cuda.h). Sets of buffers are cycled so that no call finds its rows
 * in the L2 cache; a sample is one call on every set, timed by the device's events, and the kernel's samples and those
 * of a copy of the same bytes take turns.
 */
#pragma once

#include "base/arena.h"
#include "bench/request.h"
#include "compile.h"
#include "spec/spec.h"

/* Compiles for the GPU among options->targets and measures; prints to the standard output. An exit code: 1, and
 * words, where there is no CUDA driver or no device. */
int bench_gpu_spec(arena *a, const spec *s, const compile_options *options, const bench_options *bench);
