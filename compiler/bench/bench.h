/* bench/bench: `pegen bench SPEC.lua`, the kernel's time beside what memory or arithmetic allows.
 *
 * Chooses what is measured of the description's form and target: rows (bench/rows.h), attention (bench/attention.h), or
 * rows on a GPU (bench/gpu.h).
 */
#pragma once

#include "base/arena.h"
#include "bench/request.h"
#include "compile.h"
#include "spec/spec.h"

/* Compiles and measures; prints to the standard output. An exit code. */
typedef int bench_function(arena *a, const spec *s, const compile_options *compile, const bench_options *bench);
int bench_spec(arena *a, const spec *s, const compile_options *compile, const bench_options *bench);
