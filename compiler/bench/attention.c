/* bench/attention: see bench/attention.h.
 *
 * The kernel, the same attention without bias and rotation (made by the same emitter), and the multiply-adds' peak take
 * turns in one process; times are processor time of one thread, and what is printed are the fastest.
 */
#include "bench/attention.h"

#include "base/diag.h"
#include "bench/report.h"
#include "verify/run.h"
#include "verify/trial_attention_backward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPETITIONS = 15, SHAPE_PARTS = 4 };

typedef struct shape {
  int64_t batch, tokens, heads;
} shape;

static const shape shapes[] = {{1, 196, 12}, {1, 1024, 12}, {8, 196, 12}};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The description without its pair functions. */
static const spec *without_pairs(arena *a, const spec *s) {
  spec *plain = arena_new(a, spec);
  spec_pairwise *pair = arena_new(a, spec_pairwise);
  *plain = *s;
  *pair = (spec_pairwise){.value_dim = s->pairwise->value_dim};
  plain->name = "plain_attention";
  plain->pairwise = pair;
  plain->heads = plain->n_blocks = 1;
  plain->n_components = plain->n_operands = plain->n_inputs = plain->skip_tokens = 0;
  plain->polynomial = NULL;
  plain->grid[0] = 0;
  plain->pool = expr_pool_create(a, 1);
  return plain;
}

static loaded_kernel *load(arena *a, const spec *s, const compile_options *options) {
  compile_output object;
  if (!compile(a, s, options, &object)) return NULL;
  loaded_kernel *loaded = run_load(object.data, object.size, s->name);
  free(object.data);
  return loaded;
}

/* Row-major whole numbers of the smallest cube that holds all tokens. */
static const DLTensor *cube(arena *a, int64_t tokens, int axes) {
  double *values = arena_array(a, double, tokens *axes);
  int64_t side = 0;
  for (double volume = 0; volume < (double)tokens;) {
    side++;
    volume = 1;
    for (int axis = 0; axis < axes; axis++) volume *= (double)side;
  }
  for (int64_t n = 0; n < tokens; n++) {
    int64_t rest = n;
    for (int axis = axes - 1; axis >= 0; axis--, rest /= side)
      values[n * axes + axis] = (double)(axis ? rest % side : rest);
  }
  return tensor_contiguous(a, NUMBER_F32, 2, (int64_t[]){tokens, axes}, values);
}

/* One of the two kernels, with the fastest times of its entries. */
typedef struct contender {
  const pegen_kernel *kernel;
  attention_trial trial;
  DLTensor *out;
  attention_gradients gradients; /* of --backward */
  double seconds, backward;
} contender;

static void keep_fastest(double *best, double start) {
  double seconds = now() - start;
  if (*best == 0 || seconds < *best) *best = seconds;
}

static int take_turn(contender *c, bool backward) {
  double start = now();
  int error = attention_trial_call(c->kernel, &c->trial, c->out, 1);
  keep_fastest(&c->seconds, start);
  if (error || !backward) return error;
  start = now();
  error = attention_gradients_call(c->kernel, &c->gradients, 1);
  keep_fastest(&c->backward, start);
  return error;
}

/* Multiplications and additions of the two products of attention without pairs; of the five of its gradients. */
static double flops_of(const spec *s, const shape *size, bool backward) {
  int head_dim = s->head_dim, value_dim = s->pairwise->value_dim;
  return 2.0 * (double)(size->batch * size->heads * size->tokens * size->tokens) *
         (backward ? 3 * head_dim + 2 * value_dim : head_dim + value_dim);
}

static void write_row(json_writer *w, const spec *s, const contender *c, const contender *without, const shape *size,
                      number_type type, double peak, bool backward) {
  const pegen_kernel *kernel = c->kernel;
  double seconds = c->seconds, plain = without->seconds, flops = flops_of(s, size, false);
  report_kernel(w, kernel->name, kernel->options, kernel->targets, number_type_info(type)->name);
  report_sizes(w, "attention", size->batch, size->tokens, size->heads, s->head_dim);
  json_integer(w, "threads", 1);
  json_integer(w, "samples", REPETITIONS);
  json_number(w, "seconds", seconds);
  json_number(w, "plain_seconds", plain);
  json_number(w, "times_plain", seconds / plain);
  json_number(w, "plain_flops", flops);
  json_number(w, "peak_flops_per_second", peak);
  json_number(w, "plain_of_peak", flops / plain / peak);
  if (backward) {
    flops = flops_of(s, size, true);
    json_number(w, "backward_seconds", c->backward);
    json_number(w, "backward_plain_seconds", without->backward);
    json_number(w, "backward_times_plain", c->backward / without->backward);
    json_number(w, "backward_plain_flops", flops);
    json_number(w, "backward_plain_of_peak", flops / without->backward / peak);
  }
  report_row_end(w);
}

static void print_row(const spec *s, const contender *c, const contender *without, const shape *size, double peak,
                      bool backward) {
  double flops = flops_of(s, size, false) / without->seconds;
  printf("  [%d,%d,%d,%d]%*s %10.3f %10.3f %7.2f %9.1f %7.1f %7.2f\n", (int)size->batch, (int)size->heads,
         (int)size->tokens, s->head_dim, size->tokens < 1000 ? 3 : 2, "", c->seconds * 1e3, without->seconds * 1e3,
         c->seconds / without->seconds, flops * 1e-9, peak * 1e-9, flops / peak);
  if (!backward) return;
  flops = flops_of(s, size, true) / without->backward;
  printf("    backward          %10.3f %10.3f %7.2f %9.1f %7.1f %7.2f\n", c->backward * 1e3, without->backward * 1e3,
         c->backward / without->backward, flops * 1e-9, peak * 1e-9, flops / peak);
}

/* Gradients of all that the kernel has gradients of. */
static int lay_gradients(arena *a, contender *c, uint64_t *random) {
  int error = attention_gradients_fill(a, &c->gradients, &c->trial, c->kernel, false, 1, ROWS_BHND, random);
  if (error || attention_gradients_call(c->kernel, &c->gradients, 1) != PEGEN_ERROR_NO_GRADIENT) return error;
  c->gradients.operands = NULL; /* of rows alone */
  return 0;
}

static int measure(const spec *s, const pegen_kernel *kernel, const spec *bare, const pegen_kernel *plain,
                   const shape *size, number_type type, const bench_options *bench) {
  arena *a = arena_create();
  uint64_t random = 1;
  contender with = {.kernel = kernel}, without = {.kernel = plain};
  attention_trial *t = &with.trial;
  *t = (attention_trial){.spec = s, .operands = trial_random_operands(a, s, NUMBER_F32, &random)};
  attention_sizes sizes = {size->batch, size->heads, size->heads, size->tokens, size->tokens};
  attention_trial_fill(a, t, &sizes, type, ROWS_BHND, &random);
  if (!s->grid[0]) t->positions = cube(a, size->tokens, s->n_axes);
  without.trial = *t;
  without.trial.spec = bare;
  with.out = without.out = attention_trial_out(a, t, ROWS_BHND);
  double peak = 0;
  int error = 0, status = 0;
  if (bench->backward && !(error = lay_gradients(a, &with, &random))) error = lay_gradients(a, &without, &random);
  for (int turn = 0; turn < REPETITIONS && !error; turn++) {
    if (!(error = take_turn(&with, bench->backward))) error = take_turn(&without, bench->backward);
    double flops = bench_peak_flops();
    peak = flops > peak ? flops : peak;
  }
  if (error) {
    diag_error(NULL, 0, "bench: the kernel refused [%d,%d,%d,%d]: %s", (int)size->batch, (int)size->heads,
               (int)size->tokens, s->head_dim, pegen_strerror(error));
    status = 1;
  } else {
    json_writer *w = report_row(bench);
    if (w) write_row(w, s, &with, &without, size, type, peak, bench->backward);
    else print_row(s, &with, &without, size, peak, bench->backward);
  }
  arena_destroy(a);
  return status;
}

/* "B,N,H" or "B,N,H,D"; D must be the kernel's. */
static int read_shape(const char *text, const spec *s, shape *out) {
  long long part[SHAPE_PARTS] = {0, 0, 0, s->head_dim};
  int count = sscanf(text, "%lld,%lld,%lld,%lld", &part[0], &part[1], &part[2], &part[3]);
  if (count < 3 || part[0] < 1 || part[1] < 1 || part[2] < 1 || part[3] != s->head_dim) {
    diag_error(NULL, 0, "bench: --shape %s; B,N,H or B,N,H,%d was expected", text, s->head_dim);
    return 1;
  }
  *out = (shape){part[0], part[1], part[2]};
  return 0;
}

/* What the description allows of a shape: its heads, its grid. */
static shape fit(shape size, const spec *s) {
  if (s->heads > 1) size.heads = s->heads;
  if (s->grid[0]) size.tokens = spec_grid_tokens(s);
  return size;
}

int bench_attention(arena *a, const spec *s, const compile_options *options, const bench_options *bench) {
  compile_options compiling = *options;
  compiling.emit = EMIT_OBJ;
  compiling.no_gradients = !bench->backward;
  if (!compiling.dtypes) compiling.dtypes = PEGEN_DTYPE_F32;
  number_type type = NUMBER_F32;
  while (!(compiling.dtypes & number_type_info(type)->dtype)) type++;
  const spec *bare = without_pairs(a, s);
  loaded_kernel *loaded = load(a, s, &compiling), *plain = loaded ? load(a, bare, &compiling) : NULL;
  int status = plain ? 0 : 1;
  if (plain && !bench->report) {
    printf("%s, %s, one thread, processor time; plain: the same attention without positions; flops: 2 N M (D + Dv) of "
           "q k^T and p v, plain\n",
           s->name, number_type_info(type)->name);
    printf("  [B,H,N,D]               ms   plain ms  times   Gflop/s    peak  plain/peak\n");
  }
  shape given;
  if (plain && bench->shape) {
    status = read_shape(bench->shape, s, &given);
    if (!status) {
      given = fit(given, s);
      status = measure(s, run_kernel(loaded), bare, run_kernel(plain), &given, type, bench);
    }
  }
  for (int i = 0; plain && !bench->shape && !status && i < (s->grid[0] ? 1 : SHAPE_COUNT); i++) {
    given = fit(shapes[i], s);
    status = measure(s, run_kernel(loaded), bare, run_kernel(plain), &given, type, bench);
  }
  if (plain) run_unload(plain);
  if (loaded) run_unload(loaded);
  return status;
}
