/* bench/attention: see bench/attention.h.
 *
 * The kernel, the same attention without bias and rotation (made by the same emitter), and the multiply-adds' peak take
 * turns in one process; times are processor time of one thread, and what is printed are the fastest.
 */
#include "bench/attention.h"

#include "base/diag.h"
#include "bench/report.h"
#include "verify/run.h"
#include "verify/trial_attention.h"

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

static double time_of(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out, int *error) {
  double start = now();
  *error = attention_trial_call(kernel, t, out, 1);
  return now() - start;
}

static void write_row(json_writer *w, const spec *s, const pegen_kernel *kernel, const shape *size, number_type type,
                      double seconds, double plain, double flops, double peak) {
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
  report_row_end(w);
}

static int measure(const spec *s, const pegen_kernel *kernel, const spec *bare, const pegen_kernel *plain,
                   const shape *size, number_type type, const bench_options *bench) {
  arena *a = arena_create();
  uint64_t random = 1;
  attention_trial t = {.spec = s, .operands = trial_random_operands(a, s, NUMBER_F32, &random)};
  attention_sizes sizes = {size->batch, size->heads, size->heads, size->tokens, size->tokens};
  attention_trial_fill(a, &t, &sizes, type, ROWS_BHND, &random);
  if (!s->grid[0]) t.positions = cube(a, size->tokens, s->n_axes);
  attention_trial without = t;
  without.spec = bare;
  DLTensor *out = attention_trial_out(a, &t, ROWS_BHND);
  double best = 1e30, best_plain = 1e30, peak = 0;
  int error = 0, status = 0;
  for (int turn = 0; turn < REPETITIONS && !error; turn++) {
    double seconds = time_of(kernel, &t, out, &error),
           seconds_plain = error ? 0 : time_of(plain, &without, out, &error), flops = bench_peak_flops();
    best = seconds < best ? seconds : best;
    best_plain = seconds_plain < best_plain ? seconds_plain : best_plain;
    peak = flops > peak ? flops : peak;
  }
  if (error) {
    diag_error(NULL, 0, "bench: the kernel refused [%d,%d,%d,%d]: %s", (int)size->batch, (int)size->heads,
               (int)size->tokens, s->head_dim, pegen_strerror(error));
    status = 1;
  } else {
    double flops = 2.0 * (double)(size->batch * size->heads * size->tokens * size->tokens) *
                   (s->head_dim + s->pairwise->value_dim);
    json_writer *w = report_row(bench);
    if (w) write_row(w, s, kernel, size, type, best, best_plain, flops, peak);
    else
      printf("  [%d,%d,%d,%d]%*s %10.3f %10.3f %7.2f %9.1f %7.1f %7.2f\n", (int)size->batch, (int)size->heads,
             (int)size->tokens, s->head_dim, size->tokens < 1000 ? 3 : 2, "", best * 1e3, best_plain * 1e3,
             best / best_plain, flops / best_plain * 1e-9, peak * 1e-9, flops / best_plain / peak);
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
