/* bench/rows: a kernel's rows (q and k encoded in one call) beside loops that only move the bytes.
 *
 * Calls the C interface, argument checks included. In place the limit is the fastest loop that scales the same bytes in
 * place; out of place the fastest copy. Kernel and limits take turns in one process, so only their ratio is comparable
 * from run to run: machines drift, ratios do not. With a table the kernel encodes by what NAME_prepare wrote, which is
 * timed too, and the limit also reads the table's bytes. Where the reader is asked for, kernel and limits are each
 * followed by one reading of what they wrote, as an attention does: so it shows what it is worth to leave outputs in
 * the caches.
 */
#pragma once

#include "base/arena.h"
#include "bench/request.h"
#include "pegen/pegen.h"
#include "spec/spec.h"

/* Measures a kernel that is already there. dtype: one PEGEN_DTYPE_ bit. An exit code. */
int bench_kernel(arena *a, const spec *s, const pegen_kernel *kernel, unsigned dtype, const bench_options *bench);

/* Says that `what` has no table, and gives the exit code of that. */
int bench_refuse_table(const spec *s, const char *what);
