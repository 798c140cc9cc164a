/* bench/attention: `pegen bench` of attention: beside the same attention without a function of positions, and beside
 * the multiply-adds that the machine can do. */
#pragma once

#include "bench/request.h"
#include "compile.h"
#include "spec/spec.h"

/* Times a description of attention as bench_spec times one that encodes. It runs on one thread, in float32 unless
 * --dtype says otherwise, or on an NVIDIA device, in bfloat16. Keys are a number of them, or as many as queries. */
int bench_attention(arena *a, const spec *s, const compile_options *compile, const bench_options *bench);
