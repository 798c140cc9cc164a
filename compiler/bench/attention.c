/* bench/attention: see bench/attention.h.
 *
 * The kernel, the same attention without bias, rotation and mask (made by the same emitter), and the multiply-adds'
 * peak take turns in one process; what is printed are the fastest times. With a given number of keys, and on a device,
 * one reading of keys and values takes turns, too. What a mask hides is the reference's word.
 */
#include "bench/attention.h"

#include "base/diag.h"
#include "bench/attention_machine.h"
#include "bench/report.h"
#include "bench/seen.h"
#include "bench/shapes.h"
#include "gpu/target.h"
#include "plan/attention.h"

#include <stdio.h>

enum { REPETITIONS = 15, MOST_REPETITIONS = 400, SHAPE_PARTS = 4 };
static const double SECONDS_OF_TURNS = 1; /* where calls are short */

typedef struct shape {
  int64_t batch, tokens, heads;
  unsigned on;           /* BENCH_ON_ bits */
  int64_t keys, k_heads; /* tokens and heads, unless asked for */
} shape;

static const shape shapes[] = {{.batch = 1, .tokens = 196, .heads = 12, .on = BENCH_ON_CPU},
                               {.batch = 1, .tokens = 1024, .heads = 12, .on = BENCH_ON_CPU},
                               {.batch = 8, .tokens = 196, .heads = 12, .on = BENCH_ON_CPU},
                               {.batch = 64, .tokens = 196, .heads = 12, .on = BENCH_ON_GPU},
                               {.batch = 4, .tokens = 4096, .heads = 16, .on = BENCH_ON_GPU}};
static const shape one_query = {.batch = 1, .tokens = 1, .heads = 12};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes, DECODE_KEYS = 4096 };

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

/* Places of so many tokens, of the last `rows` of them. */
static const DLTensor *places(arena *a, int64_t tokens, int64_t rows, int axes) {
  const float *values = bench_positions(a, tokens, axes) + (tokens - rows) * axes;
  double *wide = arena_array(a, double, rows *axes);
  for (int64_t i = 0; i < rows * axes; i++) wide[i] = values[i];
  return tensor_contiguous(a, NUMBER_F32, 2, (int64_t[]){rows, axes}, wide);
}

/* One of the two kernels, with the fastest times of its entries. */
typedef struct contender {
  const pegen_kernel *kernel;
  attention_trial trial;
  DLTensor *out;
  attention_gradients gradients; /* of --backward */
  double seconds, backward;
} contender;

/* Multiplications and additions of the two products of attention without pairs; of the five of its gradients. */
static double flops_of(const spec *s, const shape *size, bool backward) {
  int head_dim = s->head_dim, value_dim = s->pairwise->value_dim;
  return 2.0 * (double)(size->batch * size->heads * size->tokens * size->keys) *
         (backward ? 3 * head_dim + 2 * value_dim : head_dim + value_dim);
}

/* What was measured of a shape. */
typedef struct figures {
  attention_machine *machine;
  const spec *s;
  const bench_options *bench;
  const shape *size;
  number_type type;
  contender with, without;
  int samples;
  attention_limits limits;
  double seen; /* share of pairs; 1 where nothing is hidden */
} figures;

/* The longer of the times that one reading of k and v and the multiply-adds take at least. */
static double limit_of(const figures *f) {
  double arithmetic = flops_of(f->s, f->size, false) / f->limits.peak;
  return f->limits.reading > arithmetic ? f->limits.reading : arithmetic;
}

static double share_of(const figures *f) { return f->with.seconds / (f->without.seconds * f->seen); }

static void write_keys(json_writer *w, const figures *f) {
  json_integer(w, "keys", f->size->keys);
  json_integer(w, "key_heads", f->size->k_heads);
  json_integer(w, "bytes", (int64_t)(tensor_bytes(f->limits.k) + tensor_bytes(f->limits.v)));
  json_number(w, "reading_seconds", f->limits.reading);
  json_number(w, "multiply_add_seconds", flops_of(f->s, f->size, false) / f->limits.peak);
  json_number(w, "plain_ratio", limit_of(f) / f->without.seconds);
  json_number(w, "ratio", limit_of(f) / f->with.seconds);
}

static void write_row(json_writer *w, const figures *f) {
  const pegen_kernel *kernel = f->with.kernel;
  double seconds = f->with.seconds, plain = f->without.seconds, flops = flops_of(f->s, f->size, false);
  const attention_machine *m = f->machine;
  report_kernel(w, kernel->name, kernel->options, m->device ? m->chip : kernel->targets,
                number_type_info(f->type)->name);
  report_sizes(w, "attention", f->size->batch, f->size->tokens, f->size->heads, f->s->head_dim);
  if (m->device) json_text(w, "device", m->device);
  else json_integer(w, "threads", 1);
  json_integer(w, "samples", f->samples);
  json_number(w, "seconds", seconds);
  json_number(w, "plain_seconds", plain);
  json_number(w, "times_plain", seconds / plain);
  json_number(w, "plain_flops", flops);
  json_text(w, "peak_loop", m->peak_name(m, f->type));
  json_number(w, "peak_flops_per_second", f->limits.peak);
  json_number(w, "plain_of_peak", flops / plain / f->limits.peak);
  if (f->limits.reading > 0) write_keys(w, f);
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
    json_number(w, "backward_plain_of_peak", flops / f->without.backward / f->limits.peak);
  }
  report_row_end(w);
}

/* The columns behind the first one: times of a call and of plain attention, and what the latter does of `flops`. */
static void print_times(const figures *f, double seconds, double plain, double flops) {
  int digits = plain < 1e-3 ? 4 : 3;
  printf(" %10.*f %10.*f %7.2f %10.1f %10.1f %7.2f\n", digits, seconds * 1e3, digits, plain * 1e3, seconds / plain,
         flops / plain * 1e-9, f->limits.peak * 1e-9, flops / plain / f->limits.peak);
}

static void print_row(const figures *f) {
  const shape *size = f->size;
  char dims[64];
  double plain = f->without.seconds, flops = flops_of(f->s, size, false);
  snprintf(dims, sizeof dims, "[%d,%d,%d,%d]", (int)size->batch, (int)size->heads, (int)size->tokens, f->s->head_dim);
  printf("  %-16s", dims);
  print_times(f, f->with.seconds, plain, flops);
  if (f->limits.reading > 0)
    printf("    %d keys of %d heads: one reading %.4f ms, multiply-adds %.4f ms; limit/plain %.2f, limit/call %.2f\n",
           (int)size->keys, (int)size->k_heads, f->limits.reading * 1e3, flops / f->limits.peak * 1e3,
           limit_of(f) / plain, limit_of(f) / f->with.seconds);
  if (f->seen < 1) printf("    %.2f %% of pairs seen: %.2f times their share of plain\n", f->seen * 100, share_of(f));
  if (!f->bench->backward) return;
  printf("    %-14s", "backward");
  print_times(f, f->with.backward, f->without.backward, flops_of(f->s, size, true));
}

/* ---- calls ---- */

static int call(const figures *f, contender *c, bool backward) {
  attention_machine *m = f->machine;
  return backward ? m->backward(m, c->kernel, &c->gradients) : m->forward(m, c->kernel, &c->trial, c->out);
}

/* Times one call by as many as fill the machine's sample, and in the first turn by one. */
static int take_turn(const figures *f, contender *c, bool backward) {
  attention_machine *m = f->machine;
  double *best = backward ? &c->backward : &c->seconds, seconds = 0;
  double fill = *best > 0 ? m->sample_seconds / *best : 1;
  int calls = fill < 1 ? 1 : fill < m->most_calls ? (int)fill : m->most_calls, error = m->start(m);
  for (int i = 0; i < calls && !error; i++) error = call(f, c, backward);
  if (!error) error = m->stop(m, &seconds);
  seconds /= calls;
  if (*best == 0 || seconds < *best) *best = seconds;
  return error;
}

static int take_turns(figures *f) {
  bool decodes = f->bench->keys || f->size->keys != f->size->tokens; /* beside one reading of keys and values */
  int error = 0;
  f->samples = REPETITIONS;
  for (int turn = 0; turn < f->samples && !error; turn++) {
    for (int backward = 0; backward <= f->bench->backward && !error; backward++) {
      error = take_turn(f, &f->with, backward);
      if (!error) error = take_turn(f, &f->without, backward);
    }
    if (!error) error = f->machine->limit(f->machine, &f->limits, decodes, turn < REPETITIONS);
    if (turn > 0 || !decodes) continue;
    double turns = SECONDS_OF_TURNS / (f->with.seconds + f->without.seconds);
    f->samples = turns < REPETITIONS ? REPETITIONS : turns < MOST_REPETITIONS ? (int)turns : MOST_REPETITIONS;
  }
  return error;
}

/* Gradients of all that the kernel has gradients of. */
static int lay_gradients(arena *a, const figures *f, contender *c, uint64_t *random) {
  attention_machine *m = f->machine;
  attention_gradients_lay(a, &c->gradients, &c->trial, c->kernel, false, 1, ROWS_BHND, random);
  int error = m->forward(m, c->kernel, &c->gradients.forward, c->gradients.out);
  if (error || call(f, c, true) != PEGEN_ERROR_NO_GRADIENT) return error;
  c->gradients.operands = NULL; /* of rows alone */
  return 0;
}

/* Tensors of both; an error of the kernel's. */
static int lay_tensors(arena *a, figures *f, const spec *bare) {
  uint64_t random = 1;
  const shape *size = f->size;
  attention_trial *t = &f->with.trial;
  *t = (attention_trial){.spec = f->s, .operands = trial_random_operands(a, f->s, NUMBER_F32, &random)};
  attention_sizes sizes = {size->batch, size->heads, size->k_heads, size->tokens, size->keys};
  attention_trial_fill(a, t, &sizes, f->type, ROWS_BHND, &random);
  if (!f->s->grid[0]) t->positions = places(a, size->keys, size->tokens, f->s->n_axes);
  if (size->keys != size->tokens) t->k_positions = places(a, size->keys, size->keys, f->s->n_axes);
  f->without.trial = *t;
  f->without.trial.spec = bare;
  t->causal = f->bench->causal;
  f->with.out = f->without.out = attention_trial_out(a, t, ROWS_BHND);
  f->limits = (attention_limits){.k = t->k, .v = t->v};
  int error = f->machine->open(f->machine, a, f->type);
  if (!error && f->bench->backward) error = lay_gradients(a, f, &f->with, &random);
  if (!error && f->bench->backward) error = lay_gradients(a, f, &f->without, &random);
  return error;
}

/* Both kernels, of one number type. */
typedef struct kernels {
  attention_machine *machine;
  const spec *s, *bare;
  const pegen_kernel *kernel, *plain;
  number_type type;
  const bench_options *bench;
} kernels;

static int measure(const kernels *k, const shape *size) {
  arena *a = arena_create();
  figures f = {.machine = k->machine, .s = k->s, .bench = k->bench, .size = size, .type = k->type, .seen = 1};
  f.with.kernel = k->kernel;
  f.without.kernel = k->plain;
  int error = lay_tensors(a, &f, k->bare);
  if (!error) error = take_turns(&f);
  if (error > 0)
    diag_error(NULL, 0, "bench: the kernel refused [%d,%d,%d,%d]: %s", (int)size->batch, (int)size->heads,
               (int)size->tokens, k->s->head_dim, pegen_strerror(error));
  if (!error) {
    const attention_plan *plan = attention_plan_build(a, k->s);
    if (k->bench->causal || (plan && plan->mask)) f.seen = bench_seen_share(&f.with.trial);
    json_writer *w = report_row(k->bench);
    if (w) write_row(w, &f);
    else print_row(&f);
  }
  k->machine->clear(k->machine);
  arena_destroy(a);
  return error ? STATUS_ERROR : STATUS_OK;
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
  return measure(k, &size);
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

static void print_head(const kernels *k) {
  const attention_machine *m = k->machine;
  printf("%s, %s, ", k->s->name, number_type_info(k->type)->name);
  if (m->device) printf("%s, PTX of %s, times by its events", m->device, m->chip);
  else printf("one thread, processor time");
  printf("; plain: the same attention without positions; flops: 2 N M (D + Dv) of q k^T and p v, plain\n");
  printf("  peak: %s\n", m->peak_name(m, k->type));
  printf("  %-16s %10s %10s %7s %10s %10s  plain/peak\n", "[B,H,N,D]", "ms", "plain ms", "times", "Gflop/s", "peak");
}

static int measure_type(const kernels *k) {
  shape given = one_query;
  if (!k->bench->report) print_head(k);
  if (k->bench->shape) {
    int status = read_shape(k->bench->shape, k->s, k->bench, &given);
    if (!status) status = measure_shape(k, given);
    print_advice(k);
    return status;
  }
  if (k->bench->keys) return measure_shape(k, given);
  int status = STATUS_OK;
  for (int i = 0, measured = 0; !status && i < SHAPE_COUNT && !(measured && k->s->grid[0]); i++) {
    if (!(shapes[i].on & k->machine->shapes)) continue;
    status = measure_shape(k, shapes[i]);
    measured++;
  }
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

static int measure_types(const spec *s, const spec *bare, const loaded_kernel *loaded, const loaded_kernel *plain,
                         unsigned dtypes, attention_machine *machine, const bench_options *bench) {
  int status = STATUS_OK;
  for (int i = 0; i < NUMBER_CHANNEL_TYPES && !status; i++) {
    kernels k = {machine, s, bare, run_kernel(loaded), run_kernel(plain), (number_type)i, bench};
    if (dtypes & number_type_info(k.type)->dtype) status = measure_type(&k);
  }
  return status;
}

int bench_attention(arena *a, const spec *s, const compile_options *options, const bench_options *bench) {
  compile_options compiling = *options;
  const char *processors;
  bool on_gpu = gpu_target_parse(a, options->targets, &processors) && !processors;
  if (refuse_keys(s, bench)) return STATUS_ERROR;
  attention_machine *machine = on_gpu ? attention_device(a, options->targets) : attention_processor(a);
  if (!machine) return STATUS_ERROR;
  if (on_gpu) compiling.targets = arena_printf(a, "native,%s", options->targets);
  compiling.emit = EMIT_OBJ;
  compiling.no_gradients = !bench->backward;
  if (!compiling.dtypes) compiling.dtypes = machine->dtypes;
  const spec *bare = without_pairs(a, s);
  loaded_kernel *loaded = trial_load_as(a, s, &compiling), *plain = loaded ? trial_load_as(a, bare, &compiling) : NULL;
  int status = plain ? measure_types(s, bare, loaded, plain, compiling.dtypes, machine, bench) : STATUS_ERROR;
  if (plain) run_unload(plain);
  if (loaded) run_unload(loaded);
  machine->close(machine);
  return status;
}
