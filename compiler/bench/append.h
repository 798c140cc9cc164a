/* bench/append: NAME_append, what serves a token, beside the calls that it replaces and loops that only move the bytes.
 *
 * q, k and v of a shape, k and v with as many heads or one for some of q's; they go to slots of caches [pages,16,H,D],
 * where pages follow each other in no order and the tokens of a page are adjacent, as sequences have them. The call is
 * timed with RMS norms of q and k and without, and beside the latter NAME_encode, which leaves k where rows are, and
 * then a copy of k and v to their slots. A limit moves what the call reads and writes once: q scaled where it lies, or
 * copied, runs of rows of k and v copied to the same slots.
 */
#pragma once

#include "base/arena.h"
#include "bench/request.h"
#include "pegen/pegen.h"
#include "spec/spec.h"

/* Measures a kernel that is already there. dtype: one PEGEN_DTYPE_ bit. An exit code. */
int bench_append(arena *a, const spec *s, const pegen_kernel *kernel, unsigned dtype, const bench_options *bench);

/* Says why the description, or its target, has no such call, and gives the exit code of that. */
int bench_refuse_append(const spec *s, const char *what);
