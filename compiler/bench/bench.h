/* bench/bench: `pegen bench SPEC.lua`, the kernel's time beside that of a loop that only moves the bytes.
 *
 * Compiles the description, loads the object and calls its C interface (argument
 * checks included) with q and k in one call. In place the limit is the fastest
 * loop that scales the same bytes in place; out of place the fastest copy.
 * Kernel and limits take turns in one process, so only their ratio is
 * comparable from run to run: machines drift, ratios do not. With a table the kernel encodes by what NAME_prepare
 * wrote, which is timed too, and the limit also reads the table's bytes.
 */
#ifndef PEGEN_BENCH_BENCH_H
#define PEGEN_BENCH_BENCH_H

#include "base/arena.h"
#include "cli/options.h"
#include "compile.h"
#include "pegen/pegen.h"
#include "spec/spec.h"

/* Is it B,N,H or B,N,H,D, or the name of a shape? (What --shape takes; the kernel may still refuse it.) */
bool bench_shape_known(const char *text);
/* The name of the i-th built-in shape, NULL beyond the last. */
const char *bench_shape_name(int i);

/* Compiles and measures; prints to the standard output. An exit code. */
typedef int bench_function(arena *a, const spec *s, const compile_options *compile, const bench_options *bench);
int bench_spec(arena *a, const spec *s, const compile_options *compile, const bench_options *bench);

/* Measures a kernel that is already there. dtype: one PEGEN_DTYPE_ bit. An exit code. */
int bench_kernel(arena *a, const spec *s, const pegen_kernel *kernel, unsigned dtype, const bench_options *bench);

/* Row-major positions [tokens][axes] of the smallest cube that holds all tokens, as images and volumes have. */
float *bench_positions(arena *a, int64_t tokens, int axes);
/* A time in the unit that fits it. */
void bench_print_time(double seconds);

#endif
