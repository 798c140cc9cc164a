/* bench/attention: see bench/attention.h.
 *
 * The kernel, the same attention without bias, rotation and mask (made by the same emitter), and the multiply-adds'
 * peak take turns in one process; times are processor time of one thread, and what is printed are the fastest. Of a
 * number of keys that was asked for one reading of keys and values takes turns, too. What a mask hides is the
 * reference's word.
 */
#include "bench/attention.h"

#include "base/diag.h"
#include "bench/limits.h"
#include "bench/report.h"
#include "bench/seen.h"
#include "bench/shapes.h"
#include "plan/attention.h"
#include "verify/run.h"
#include "verify/trial_attention_backward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPETITIONS = 15, MOST_REPETITIONS = 400, SHAPE_PARTS = 4 };
static const double SECONDS_OF_TURNS = 1; /* where calls are short */

typedef struct shape {
  int64_t batch, tokens, heads;
  int64_t keys, k_heads; /* tokens and heads, unless asked for */
} shape;

static const shape shapes[] = {{.batch = 1, .tokens = 196, .heads = 12},
                               {.batch = 1, .tokens = 1024, .heads = 12},
                               {.batch = 8, .tokens = 196, .heads = 12}};
static const shape one_query = {.batch = 1, .tokens = 1, .heads = 12};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes, DECODE_KEYS = 4096 };

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

/* Row-major whole numbers of the smallest cube that holds all tokens, of the last `rows` of them. */
static const DLTensor *cube(arena *a, int64_t tokens, int64_t rows, int axes) {
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
  return tensor_contiguous(a, NUMBER_F32, 2, (int64_t[]){rows, axes}, values + (tokens - rows) * axes);
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
  return 2.0 * (double)(size->batch * size->heads * size->tokens * size->keys) *
         (backward ? 3 * head_dim + 2 * value_dim : head_dim + value_dim);
}

/* What was measured of a shape. */
typedef struct figures {
  const spec *s;
  const bench_options *bench;
  const shape *size;
  number_type type;
  contender with, without;
  int samples;
  double peak;
  double seen; /* share of pairs; 1 where nothing is hidden */
  size_t bytes;   /* of k and v */
  double reading; /* seconds; 0: not asked for */
} figures;

/* The longer of the times that one reading of k and v and the multiply-adds take at least. */
static double limit_of(const figures *f) {
  double arithmetic = flops_of(f->s, f->size, false) / f->peak;
  return f->reading > arithmetic ? f->reading : arithmetic;
}

static double share_of(const figures *f) { return f->with.seconds / (f->without.seconds * f->seen); }

static void write_keys(json_writer *w, const figures *f) {
  json_integer(w, "keys", f->size->keys);
  json_integer(w, "key_heads", f->size->k_heads);
  json_integer(w, "bytes", (int64_t)f->bytes);
  json_number(w, "reading_seconds", f->reading);
  json_number(w, "multiply_add_seconds", flops_of(f->s, f->size, false) / f->peak);
  json_number(w, "plain_ratio", limit_of(f) / f->without.seconds);
  json_number(w, "ratio", limit_of(f) / f->with.seconds);
}

static void write_row(json_writer *w, const figures *f) {
  const pegen_kernel *kernel = f->with.kernel;
  double seconds = f->with.seconds, plain = f->without.seconds, flops = flops_of(f->s, f->size, false);
  report_kernel(w, kernel->name, kernel->options, kernel->targets, number_type_info(f->type)->name);
  report_sizes(w, "attention", f->size->batch, f->size->tokens, f->size->heads, f->s->head_dim);
  json_integer(w, "threads", 1);
  json_integer(w, "samples", f->samples);
  json_number(w, "seconds", seconds);
  json_number(w, "plain_seconds", plain);
  json_number(w, "times_plain", seconds / plain);
  json_number(w, "plain_flops", flops);
  json_number(w, "peak_flops_per_second", f->peak);
  json_number(w, "plain_of_peak", flops / plain / f->peak);
  if (f->reading > 0) write_keys(w, f);
  if (f->seen < 1) {
    json_number(w, "seen", f->seen);
    json_number(w, "times_share", share_of(f));
  }
  if (f->bench->backward) {
    flops = flops_of(f->s, f->size, true);
    json_number(w, "backward_seconds", f->with.backward);
    json_number(w, "backward_plain_seconds", f->without.backward);
    json_number(w, "backward_times_plain", f->with.backward / f->without.backward);
    json_number(w, "backward_plain_flops", flops);
    json_number(w, "backward_plain_of_peak", flops / f->without.backward / f->peak);
  }
  report_row_end(w);
}

static void print_row(const figures *f) {
  const shape *size = f->size;
  double plain = f->without.seconds, flops = flops_of(f->s, size, false) / plain;
  printf("  [%d,%d,%d,%d]%*s %10.3f %10.3f %7.2f %9.1f %7.1f %7.2f\n", (int)size->batch, (int)size->heads,
         (int)size->tokens, f->s->head_dim, size->tokens < 1000 ? 3 : 2, "", f->with.seconds * 1e3, plain * 1e3,
         f->with.seconds / plain, flops * 1e-9, f->peak * 1e-9, flops / f->peak);
  if (f->reading > 0)
    printf("    %d keys of %d heads: one reading %.3f ms, multiply-adds %.3f ms; limit/plain %.2f, limit/call %.2f\n",
           (int)size->keys, (int)size->k_heads, f->reading * 1e3, flops_of(f->s, size, false) / f->peak * 1e3,
           limit_of(f) / plain, limit_of(f) / f->with.seconds);
  if (f->seen < 1) printf("    %.2f %% of pairs seen: %.2f times their share of plain\n", f->seen * 100, share_of(f));
  if (!f->bench->backward) return;
  flops = flops_of(f->s, size, true) / f->without.backward;
  printf("    backward          %10.3f %10.3f %7.2f %9.1f %7.1f %7.2f\n", f->with.backward * 1e3,
         f->without.backward * 1e3, f->with.backward / f->without.backward, flops * 1e-9, f->peak * 1e-9,
         flops / f->peak);
}

/* Gradients of all that the kernel has gradients of. */
static int lay_gradients(arena *a, contender *c, uint64_t *random) {
  int error = attention_gradients_fill(a, &c->gradients, &c->trial, c->kernel, false, 1, ROWS_BHND, random);
  if (error || attention_gradients_call(c->kernel, &c->gradients, 1) != PEGEN_ERROR_NO_GRADIENT) return error;
  c->gradients.operands = NULL; /* of rows alone */
  return 0;
}

/* One reading of k and v, by whichever loop is fastest. */
static void read_keys(figures *f) {
  const limit_loop *loops;
  float sink[LIMIT_SINK / sizeof(float)];
  const attention_trial *t = &f->with.trial;
  int64_t rows = f->size->batch * f->size->k_heads * f->size->keys, number = number_bytes(f->type);
  size_t of_k = (size_t)(rows * f->s->head_dim * number), of_v = (size_t)(rows * f->s->pairwise->value_dim * number);
  f->bytes = of_k + of_v;
  for (int i = 0, count = limit_reads(&loops); i < count; i++) {
    double start = now();
    loops[i].run(sink, t->k->data, of_k / LIMIT_SINK * LIMIT_SINK);
    loops[i].run(sink, t->v->data, of_v / LIMIT_SINK * LIMIT_SINK);
    keep_fastest(&f->reading, start);
  }
}

static int take_turns(figures *f) {
  int error = 0;
  bool decodes = f->bench->keys || f->size->keys != f->size->tokens; /* beside one reading of keys and values */
  f->samples = REPETITIONS;
  for (int turn = 0; turn < f->samples && !error; turn++) {
    if ((error = take_turn(&f->with, f->bench->backward))) return error;
    error = take_turn(&f->without, f->bench->backward);
    if (decodes) read_keys(f);
    if (turn == 0 && decodes) {
      double turns = SECONDS_OF_TURNS / (f->with.seconds + f->without.seconds);
      f->samples = turns < REPETITIONS ? REPETITIONS : turns < MOST_REPETITIONS ? (int)turns : MOST_REPETITIONS;
    }
    if (turn >= REPETITIONS) continue;
    double flops = bench_peak_flops();
    f->peak = flops > f->peak ? flops : f->peak;
  }
  return error;
}

/* Tensors of both; an error of the kernel's. */
static int lay_tensors(arena *a, figures *f, const spec *bare) {
  uint64_t random = 1;
  const shape *size = f->size;
  attention_trial *t = &f->with.trial;
  *t = (attention_trial){.spec = f->s, .operands = trial_random_operands(a, f->s, NUMBER_F32, &random)};
  attention_sizes sizes = {size->batch, size->heads, size->k_heads, size->tokens, size->keys};
  attention_trial_fill(a, t, &sizes, f->type, ROWS_BHND, &random);
  if (!f->s->grid[0]) t->positions = cube(a, size->keys, size->tokens, f->s->n_axes);
  if (size->keys != size->tokens) t->k_positions = cube(a, size->keys, size->keys, f->s->n_axes);
  f->without.trial = *t;
  f->without.trial.spec = bare;
  t->causal = f->bench->causal;
  f->with.out = f->without.out = attention_trial_out(a, t, ROWS_BHND);
  if (!f->bench->backward) return 0;
  int error = lay_gradients(a, &f->with, &random);
  return error ? error : lay_gradients(a, &f->without, &random);
}

static int measure(const spec *s, const pegen_kernel *kernel, const spec *bare, const pegen_kernel *plain,
                   const shape *size, number_type type, const bench_options *bench) {
  arena *a = arena_create();
  int status = STATUS_OK;
  figures f = {.s = s, .bench = bench, .size = size, .type = type, .seen = 1};
  f.with.kernel = kernel;
  f.without.kernel = plain;
  int error = lay_tensors(a, &f, bare);
  if (!error) error = take_turns(&f);
  if (error) {
    diag_error(NULL, 0, "bench: the kernel refused [%d,%d,%d,%d]: %s", (int)size->batch, (int)size->heads,
               (int)size->tokens, s->head_dim, pegen_strerror(error));
    status = STATUS_ERROR;
  } else {
    const attention_plan *plan = attention_plan_build(a, s);
    if (bench->causal || (plan && plan->mask)) f.seen = bench_seen_share(&f.with.trial);
    json_writer *w = report_row(bench);
    if (w) write_row(w, &f);
    else print_row(&f);
  }
  arena_destroy(a);
  return status;
}

/* A name, "B,N,H" or "B,N,H,D"; D must be the kernel's. One token by a name is decoding: a query against many keys,
 * where these need not be as many as queries. */
static int read_shape(const char *text, const spec *s, const bench_options *bench, shape *out) {
  const bench_shape *named = bench_shape_find(text);
  if (named) {
    bool decodes = named->tokens == 1 && !s->grid[0] && !bench->backward;
    *out = (shape){.batch = named->batches, .tokens = named->tokens, .heads = named->heads};
    out->keys = decodes ? DECODE_KEYS : 0;
    return STATUS_OK;
  }
  long long part[SHAPE_PARTS] = {0, 0, 0, s->head_dim};
  int count = sscanf(text, "%lld,%lld,%lld,%lld", &part[0], &part[1], &part[2], &part[3]);
  if (count < 3 || part[0] < 1 || part[1] < 1 || part[2] < 1 || part[3] != s->head_dim) {
    diag_error(NULL, 0, "bench: --shape %s; a name, B,N,H or B,N,H,%d was expected", text, s->head_dim);
    return STATUS_ERROR;
  }
  *out = (shape){.batch = part[0], .tokens = part[1], .heads = part[2]};
  return STATUS_OK;
}

/* What the description allows of a shape: its heads, its grid. */
static shape fit(shape size, const spec *s, int64_t keys, int group) {
  if (s->heads > 1) size.heads = s->heads;
  if (s->grid[0]) size.tokens = spec_grid_tokens(s);
  size.keys = keys ? keys : size.keys ? size.keys : size.tokens;
  size.k_heads = size.heads / group;
  return size;
}

/* Both kernels, of one number type. */
typedef struct kernels {
  const spec *s, *bare;
  const pegen_kernel *kernel, *plain;
  number_type type;
  const bench_options *bench;
} kernels;

static int measure_keys(const kernels *k, shape given, int64_t keys) {
  int group = k->bench->group ? k->bench->group : 1;
  shape size = fit(given, k->s, keys, group);
  if (size.keys < size.tokens || size.heads % group) {
    diag_error(k->s->file, k->s->line,
               "bench: %d queries of %d heads against %d keys in groups of %d heads; no more queries than keys were "
               "expected, and whole groups",
               (int)size.tokens, (int)size.heads, (int)size.keys, group);
    return STATUS_ERROR;
  }
  return measure(k->s, k->kernel, k->bare, k->plain, &size, k->type, k->bench);
}

static int measure_shape(const kernels *k, shape given) {
  if (!k->bench->keys) return measure_keys(k, given, 0);
  int status = STATUS_OK;
  for (int i = 0; i < k->bench->n_keys && !status; i++) status = measure_keys(k, given, k->bench->keys[i]);
  return status;
}

/* What would make the kernel faster, where figures are lines. */
static void print_advice(const kernels *k) {
  arena *a = arena_create();
  const attention_plan *plan = attention_plan_build(a, k->s);
  if (!k->bench->report && plan && plan->wants_grid)
    puts("  faster on a grid of tokens that is built in: -D grid=14,14 for images of 14 x 14 tokens");
  arena_destroy(a);
}

static int measure_type(const kernels *k) {
  shape given = one_query;
  if (!k->bench->report) {
    printf("%s, %s, one thread, processor time; plain: the same attention without positions; flops: 2 N M (D + Dv) of "
           "q k^T and p v, plain\n",
           k->s->name, number_type_info(k->type)->name);
    printf("  [B,H,N,D]               ms   plain ms  times   Gflop/s    peak  plain/peak\n");
  }
  if (k->bench->shape) {
    int status = read_shape(k->bench->shape, k->s, k->bench, &given);
    if (!status) status = measure_shape(k, given);
    print_advice(k);
    return status;
  }
  if (k->bench->keys) return measure_shape(k, given);
  int status = STATUS_OK;
  for (int i = 0; !status && i < (k->s->grid[0] ? 1 : SHAPE_COUNT); i++) status = measure_shape(k, shapes[i]);
  print_advice(k);
  return status;
}

/* What --keys does not go with. */
static int refuse_keys(const spec *s, const bench_options *bench) {
  const char *what = s->grid[0] ? "positions are those of a grid" : bench->backward ? "--backward was given" : NULL;
  if (!bench->keys || !what) return STATUS_OK;
  diag_error(s->file, s->line, "bench: --keys, but %s; expected an attention of queries and keys apart, forward", what);
  return STATUS_ERROR;
}

int bench_attention(arena *a, const spec *s, const compile_options *options, const bench_options *bench) {
  compile_options compiling = *options;
  compiling.emit = EMIT_OBJ;
  compiling.no_gradients = !bench->backward;
  if (!compiling.dtypes) compiling.dtypes = PEGEN_DTYPE_F32;
  int status = refuse_keys(s, bench);
  if (status) return status;
  const spec *bare = without_pairs(a, s);
  loaded_kernel *loaded = load(a, s, &compiling), *plain = loaded ? load(a, bare, &compiling) : NULL;
  if (!plain) status = STATUS_ERROR;
  for (int i = 0; i < NUMBER_CHANNEL_TYPES && !status; i++) {
    number_type type = (number_type)i;
    if (!(compiling.dtypes & number_type_info(type)->dtype)) continue;
    kernels k = {s, bare, run_kernel(loaded), run_kernel(plain), type, bench};
    status = measure_type(&k);
  }
  if (plain) run_unload(plain);
  if (loaded) run_unload(loaded);
  return status;
}
