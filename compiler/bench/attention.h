/* bench/attention: `pegen bench` of attention: beside the same attention without a function of positions, and beside
 * the multiply-adds that the processor can do. */
#ifndef PEGEN_BENCH_ATTENTION_H
#define PEGEN_BENCH_ATTENTION_H

#include "bench/request.h"
#include "compile.h"
#include "spec/spec.h"

/* As bench_spec, of a description of attention. float32 or the types of --dtype, one thread, a number of keys or as
 * many as queries. */
int bench_attention(arena *a, const spec *s, const compile_options *compile, const bench_options *bench);

/* Multiplications and additions of float32 a second that one thread of this processor does at most. */
double bench_peak_flops(void);

#endif
