/* bench/turns: contenders that take turns: a kernel's calls, and the loops that they are held against.
 *
 * They work on the same buffers in one process. A sample is as many calls as fill a quarter of a millisecond, after
 * some that are not timed; a contender's time is the median of its samples. Machines drift, so only ratios of one run
 * are comparable from run to run.
 */
#pragma once

#include "base/json.h"
#include "bench/bed.h"
#include "bench/limits.h"

#include <stdatomic.h>

enum { TURNS_MOST = 23 }; /* samples of a contender */

/* What is measured shape by shape: the context of a bench_visit. */
typedef struct turns_request {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  number_type type;
  crew *threads;
  const bench_options *bench;
} turns_request;

/* Names the work of a call and what the work needs of it; the work's context is the contender. */
typedef struct contender {
  const char *name;
  crew *threads;    /* that share a call; NULL: the caller's alone */
  crew_work *work;
  crew_work *then;  /* after all parts of work have come back, as part of the call; or NULL */
  const bed *on;
  const void *with; /* what the work knows of beside the bed */
  pegen_entry *entry; /* of turns_call_kernel */
  const pegen_args *args; /* of the call; NULL: the bed's */
  pegen_entry *finish; /* called after all parts; or NULL */
  limit_function *limit; /* of a limit loop */
  atomic_int error; /* the kernel's, if it refused */
  int calls; /* in a sample */
  double sample[TURNS_MOST];
  double seconds; /* median of a call */
} contender;

/* Work: the contender's entry. */
void turns_call_kernel(void *context, int part, int parts);
/* Reads a part of whole units at `from`. */
void turns_read_part(const void *from, size_t bytes, int part, int parts);

/* Measures a kernel of one number type (a PEGEN_DTYPE_) shape by shape, behind a head of the table. */
int turns_each_shape(arena *a, const spec *s, const pegen_kernel *kernel, unsigned dtype, const bench_options *bench,
                     void (*print_head)(const turns_request *r), bench_visit *visit);

/* Times them all, with q and k of the bed filled anew before each turn. The kernel's error, or 0.
 * repetitions: at most TURNS_MOST. */
int turns_measure(contender *contenders, int count, const bed *b, int repetitions);

/* The fastest of the limit loops; NULL: there is none. */
const contender *turns_limit(const contender *contenders, int count);

/* Their names and times as a member "limits" of the row at hand. */
void turns_json_limits(json_writer *w, const contender *contenders, int count);

/* Seconds of the monotonic clock. */
double turns_now(void);
