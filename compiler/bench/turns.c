/* bench/turns: see bench/turns.h. */
#include "bench/turns.h"

#include "base/diag.h"
#include "base/number.h"

#include <stdlib.h>
#include <time.h>

enum { WARM_UP_CALLS = 2 };
static const double SAMPLE_SECONDS = 250e-6;

double turns_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void turns_call_kernel(void *context, int part, int parts) {
  contender *c = context;
  int error = c->entry(c->args ? c->args : &c->on->args, part, parts);
  if (error) atomic_store(&c->error, error);
}

/* Reads a part of whole units at `from`. */
void turns_read_part(const void *from, size_t bytes, int part, int parts) {
  _Alignas(64) char sink[LIMIT_SINK];
  size_t units = bytes / LIMIT_SINK, first = units * (size_t)part / (size_t)parts,
         last = units * (size_t)(part + 1) / (size_t)parts;
  if (last > first) limit_read()(sink, (const char *)from + first * LIMIT_SINK, (last - first) * LIMIT_SINK);
}

static void run(contender *c, crew_work *work) {
  if (c->threads) crew_run(c->threads, work, c);
  else work(c, 0, 1);
}

static void call(contender *c) {
  run(c, c->work);
  int error = c->finish ? c->finish(c->args, 0, 1) : 0;
  if (error) atomic_store(&c->error, error);
  if (c->then) run(c, c->then); /* all parts are written by now */
}

static void calibrate(contender *c) {
  for (c->calls = 1;; c->calls *= 2) {
    double start = turns_now();
    for (int i = 0; i < c->calls; i++) call(c);
    double seconds = turns_now() - start;
    if (atomic_load(&c->error)) return;
    if (seconds >= SAMPLE_SECONDS) return;
  }
}

/* The kernel's error, or 0. */
int turns_measure(contender *contenders, int count, const bed *b, int repetitions) {
  for (int i = 0; i < count; i++) {
    calibrate(&contenders[i]);
    if (atomic_load(&contenders[i].error)) return atomic_load(&contenders[i].error);
  }
  for (int r = 0; r < repetitions; r++) {
    bed_fill(b); /* an encoding that grows (or shrinks) vectors must not reach infinity (or subnormals) */
    for (int i = 0; i < count; i++) {
      contender *c = &contenders[(i + r) % count]; /* so that none always follows the same one */
      for (int n = 0; n < WARM_UP_CALLS; n++) call(c);
      double start = turns_now();
      for (int n = 0; n < c->calls; n++) call(c);
      c->sample[r] = (turns_now() - start) / c->calls;
    }
  }
  for (int i = 0; i < count; i++) {
    if (atomic_load(&contenders[i].error)) return atomic_load(&contenders[i].error);
    qsort(contenders[i].sample, (size_t)repetitions, sizeof(double), number_compare);
    contenders[i].seconds = contenders[i].sample[repetitions / 2];
  }
  return 0;
}

/* The fastest of the limit loops. */
const contender *turns_limit(const contender *contenders, int count) {
  const contender *limit = NULL;
  for (int i = 0; i < count; i++)
    if (contenders[i].limit && (!limit || contenders[i].seconds < limit->seconds)) limit = &contenders[i];
  return limit;
}

void turns_json_limits(json_writer *w, const contender *contenders, int count) {
  json_begin(w, "limits", '[');
  for (int i = 0; i < count; i++) {
    if (!contenders[i].limit) continue;
    json_begin(w, NULL, '{');
    json_text(w, "loop", contenders[i].name);
    json_number(w, "seconds", contenders[i].seconds);
    json_end(w, '}');
  }
  json_end(w, ']');
}

int turns_each_shape(arena *a, const spec *s, const pegen_kernel *kernel, unsigned dtype, const bench_options *bench,
                     void (*print_head)(const turns_request *r), bench_visit *visit) {
  turns_request r = {.memory = a, .spec = s, .kernel = kernel, .type = NUMBER_F32, .bench = bench};
  while (number_type_info(r.type)->dtype != dtype) r.type++;
  if (bench->threads > 1 && !(r.threads = crew_create(bench->threads))) {
    diag_error(NULL, 0, "bench: cannot start %d threads", bench->threads);
    return STATUS_ERROR;
  }
  if (!bench->report) print_head(&r);
  int status = bench_each_shape(kernel, bench, BENCH_ON_CPU, visit, &r);
  crew_destroy(r.threads);
  return status;
}
