/* bench/attention_cpu: attention on one thread of this processor, by the thread's own time; see
 * bench/attention_machine.h. */
#include "bench/attention_machine.h"
#include "bench/limits.h"
#include "bench/peak.h"
#include "bench/shapes.h"
#include "target/processor.h"

#include <time.h>

typedef struct processor {
  attention_machine machine;
  double started;
} processor;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open(attention_machine *m, arena *a, number_type type) {
  (void)m, (void)a, (void)type;
  return 0;
}

static void leave(attention_machine *m) { (void)m; }

static bool has_dots(number_type type) { return type == NUMBER_BF16 && target_wants_dots(); }

static const char *peak_name(const attention_machine *m, number_type type) {
  (void)m;
  return has_dots(type) ? "dot products of pairs of bfloat16" : "fused multiply-adds of float32";
}

static int forward(attention_machine *m, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  (void)m;
  return attention_trial_call(kernel, t, out, 1);
}

static int backward(attention_machine *m, const pegen_kernel *kernel, const attention_gradients *g) {
  (void)m;
  return attention_gradients_call(kernel, g, 1);
}

static int start(attention_machine *m) {
  ((processor *)m)->started = now();
  return 0;
}

static int stop(attention_machine *m, double *seconds) {
  *seconds = now() - ((processor *)m)->started;
  return 0;
}

/* By whichever loop is fastest. */
static void read_rows(attention_limits *l) {
  const limit_loop *loops;
  float sink[LIMIT_SINK / sizeof(float)];
  for (int i = 0, count = limit_reads(&loops); i < count; i++) {
    double started = now();
    loops[i].run(sink, l->k->data, tensor_bytes(l->k) / LIMIT_SINK * LIMIT_SINK);
    loops[i].run(sink, l->v->data, tensor_bytes(l->v) / LIMIT_SINK * LIMIT_SINK);
    double seconds = now() - started;
    if (l->reading == 0 || seconds < l->reading) l->reading = seconds;
  }
}

static int limit(attention_machine *m, attention_limits *l, bool reads, bool peaks) {
  (void)m;
  double flops = peaks ? bench_peak_flops(has_dots(number_type_of(l->k->dtype))) : 0;
  if (flops > l->peak) l->peak = flops;
  if (reads) read_rows(l);
  return 0;
}

attention_machine *attention_processor(arena *a) {
  processor *p = arena_new(a, processor);
  p->machine = (attention_machine){.shapes = BENCH_ON_CPU,
                                   .dtypes = PEGEN_DTYPE_F32,
                                   .most_calls = 1,
                                   .peak_name = peak_name,
                                   .open = open,
                                   .clear = leave,
                                   .close = leave,
                                   .forward = forward,
                                   .backward = backward,
                                   .start = start,
                                   .stop = stop,
                                   .limit = limit};
  return &p->machine;
}
