/* Random descriptions against the slow reference: random_test [SEED [COUNT [FIRST [TARGET | all [more]]]]]. Every
 * GRADIENTS-th also has its gradients of float32 rows, operands and positions compared, as `pegen check` holds them.
 *
 * Case i of a seed is always the same, whatever the count: "random_test SEED 1 i" repeats it.
 * A failing case is printed and its spec stays in the folder as random_SEED_i.lua.
 */
#include "random_spec.h"
#include "scoped.h"

#include "interpret/trial.h"
#include "verify/check_kind.h"
#include "verify/oracle.h"
#include "verify/reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRADIENTS = 8, PLACES = 6 }; /* tokens with positions of their own: zero, three moderate, two far */

/* 2^-20 of a block's norm for rows, 2^-22 for rotor entries, as for all kernels. In groups that are
 * not compact the size that errors are measured by is an estimate, and has a margin. */
static const long double ROW_BOUND = 0x1p-20L, ENTRY_BOUND = 0x1p-22L, MARGIN = 4;

typedef struct trial_case {
  arena *memory;
  uint64_t random;
  spec *spec;
  const pegen_kernel *kernel;
  int64_t tokens, heads, k_heads;
  const double *values;
  const DLTensor *positions;
  trial_operands operands;
  oracle *oracle, *of_keys;
} trial_case;

typedef struct summary {
  long double rows, entries; /* largest errors of compact groups */
  int refused, failed, compact;
} summary;

static bool on_gpu; /* targets are GPUs': their operands are float32 */

static bool compact(const spec *s) { return s->algebra.q == 0 && s->algebra.r == 0 && !s->entries[0]; }

/* A direction scaled to a phase of so many radians; 0 stays at the origin. */
static void place(trial_case *c, double phase, double *position) {
  const spec *s = c->spec;
  for (int a = 0; a < s->n_axes; a++) position[a] = phase == 0 ? 0 : random_uniform(&c->random, -1, 1);
  for (int step = 0; step < 6 && phase > 0; step++) {
    double now = trial_largest_phase(s, position, &c->operands);
    if (!(now > 0)) return;
    for (int a = 0; a < s->n_axes; a++) position[a] *= phase / now;
  }
}

static void choose_positions(trial_case *c) {
  const spec *s = c->spec;
  bool far_too = compact(s);
  number_type type =
      (number_type[]){NUMBER_F64, NUMBER_F64, NUMBER_F32, NUMBER_I32, NUMBER_I64}[random_below(&c->random, 5)];
  bool whole = type == NUMBER_I32 || type == NUMBER_I64;
  number_type operand = (number_type[]){NUMBER_F32, NUMBER_F64, NUMBER_BF16, NUMBER_F16}[random_below(&c->random, 4)];
  c->operands = trial_random_operands(c->memory, s, on_gpu ? NUMBER_F32 : operand, &c->random);
  if (s->grid[0]) {
    c->tokens = spec_grid_tokens(s);
  } else {
    double far = far_too ? ldexp(1, random_below(&c->random, 25)) : 0.5;
    double phases[PLACES] = {0, 1, far_too ? 4 : 0.1, far_too ? 60 : 0.7, far, far_too ? 0x1p24 : 0.9};
    c->tokens = s->skip_tokens + PLACES;
    double *values = arena_array(c->memory, double, c->tokens * s->n_axes);
    for (int n = 0; n < PLACES; n++) place(c, phases[n], values + (s->skip_tokens + n) * s->n_axes);
    /* Whole numbers would be far off where phases must be small. */
    if (whole && !far_too) type = NUMBER_F64, whole = false;
    for (int64_t i = 0; i < c->tokens * s->n_axes; i++) {
      if (whole) values[i] = fmin(fmax(values[i], -0x1p31), 0x1p31 - 1);
      values[i] = number_round(type, whole ? rint(values[i]) : values[i]);
    }
    c->values = values;
    c->positions = tensor_contiguous(c->memory, type, 2, (int64_t[]){c->tokens, s->n_axes}, values);
  }
  c->heads = s->heads > 1 ? s->heads : 1 + random_below(&c->random, 3);
  c->k_heads = s->heads > 1 ? s->heads : 1 + random_below(&c->random, 2);
  c->oracle = c->of_keys = oracle_create(c->memory, s, 1, c->tokens, c->values, &c->operands);
  if (!spec_has_sides(s)) return;
  spec *keys = arena_new(c->memory, spec);
  *keys = spec_of_side(s, 1);
  c->of_keys = oracle_create(c->memory, keys, 1, c->tokens, c->values, &c->operands);
}

static bool within(trial_case *c, const char *what, const trial_error *worst, long double bound) {
  if (!compact(c->spec)) bound *= MARGIN;
  if (!worst->spoilt && worst->error <= bound) return true;
  printf("%s: %s, bound %.3Lg\n", what, trial_error_text(c->memory, worst), bound);
  return false;
}

/* The program interpreted and rounded, as rows of q would be: within a few units of float64 of the reference. */
static bool program_agrees(trial_case *c) {
  static const long double BOUND = 0x1p-26L; /* frequencies multiplied in float64 times phases of 2^24 */
  const program *p = trial_program(c->memory, c->spec, "encode");
  const char *fault = p ? program_fault(c->memory, p) : "there is none";
  if (fault) {
    printf("program: %s\n", fault);
    return false;
  }
  DLTensor *q = tensor_rows(c->memory, NUMBER_F64, ROWS_BHND, 1, c->heads, c->tokens, c->spec->head_dim);
  DLTensor *rounded = tensor_copy(c->memory, q);
  uint64_t random = c->random; /* what is drawn for kernels stays as it is */
  tensor_randomize(q, &random);
  const long double *out = trial_interpret(c->memory, p, c->values, &c->operands, q);
  for (int64_t i = 0; i < c->heads * c->tokens * c->spec->head_dim; i++) ((double *)rounded->data)[i] = (double)out[i];
  trial_error worst = {0};
  trial_compare_rows(c->oracle, q, rounded, &worst);
  return within(c, "program", &worst, BOUND);
}

static bool refused(const char *what, int error) {
  if (error) printf("%s: refused with error %d\n", what, error);
  return error != 0;
}

static bool rows_agree(trial_case *c, number_type type, summary *total) {
  const char *what = number_type_info(type)->name;
  bool in_place = random_below(&c->random, 2), with_k = random_below(&c->random, 2);
  row_order order = (row_order)random_below(&c->random, ROW_ORDER_COUNT);
  int64_t batch = 1 + random_below(&c->random, 2);
  DLTensor *q = tensor_rows(c->memory, type, order, batch, c->heads, c->tokens, c->spec->head_dim);
  DLTensor *k = tensor_rows(c->memory, type, order, batch, c->k_heads, c->tokens, c->spec->head_dim);
  tensor_randomize(q, &c->random);
  tensor_randomize(k, &c->random);
  DLTensor *q_before = tensor_copy(c->memory, q), *k_before = tensor_copy(c->memory, k);
  DLTensor *q_out = in_place ? q : tensor_copy(c->memory, q), *k_out = in_place ? k : tensor_copy(c->memory, k);
  int error = trial_call(c->kernel, c->positions, &c->operands, q, q_out, with_k ? k : NULL, with_k ? k_out : NULL,
                         1 + random_below(&c->random, 4));
  if (refused(what, error)) return false;
  trial_error worst = {0};
  trial_compare_rows(c->oracle, q_before, q_out, &worst);
  if (with_k) trial_compare_rows(c->of_keys, k_before, k_out, &worst);
  total->rows = fmaxl(total->rows, worst.error);
  bool gaps = tensor_gaps_identical(q_out, q_before) && tensor_gaps_identical(k_out, k_before);
  if (!gaps) printf("%s: bytes between rows were written\n", what);
  return within(c, what, &worst, ROW_BOUND + trial_product_rounding(c->spec, type)) && gaps;
}

static bool entries_agree(trial_case *c, summary *total) {
  DLTensor *in = trial_unit_rows(c->memory, c->spec, NUMBER_F32, c->heads, c->tokens),
           *out = tensor_copy(c->memory, in);
  if (refused("entries", trial_call(c->kernel, c->positions, &c->operands, in, out, NULL, NULL, 1))) return false;
  trial_error worst = {0};
  trial_compare_entries(c->oracle, out, 0, c->tokens, &worst);
  total->entries = fmaxl(total->entries, worst.error);
  return within(c, "rotor entries", &worst, ENTRY_BOUND);
}

static bool run_case(trial_case *c, const char *target, unsigned dtypes, int optimize, summary *total) {
  choose_positions(c);
  SCOPED_KERNEL *loaded = trial_load(c->memory, c->spec, target, dtypes, optimize);
  if (!loaded) return false;
  c->kernel = run_kernel(loaded);
  bool passed = program_agrees(c);
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    if (dtypes & number_type_info((number_type)type)->dtype) passed = rows_agree(c, (number_type)type, total) && passed;
  if (dtypes & PEGEN_DTYPE_F32 && !spec_maps_channels(c->spec)) passed = entries_agree(c, total) && passed;
  return passed;
}

/* What check says of them is printed where it finds something wrong. */
static bool gradients_agree(trial_case *c, const char *target) {
  SCOPED_KERNEL *loaded = trial_load_gradients(c->memory, c->spec, target, PEGEN_DTYPE_F32, 1);
  if (!loaded) return false;
  checker check = {
      .memory = c->memory, .spec = c->spec, .kernel = run_kernel(loaded), .random = c->random, .target = target};
  FILE *table = tmpfile();
  int out = dup(1);
  if (!table || out < 0) exit(2);
  fflush(stdout);
  dup2(fileno(table), 1);
  check_encode_backward(&check);
  fflush(stdout);
  dup2(out, 1);
  close(out);
  rewind(table);
  for (int byte; check.n_failed && (byte = fgetc(table)) != EOF;) putchar(byte);
  fclose(table);
  return !check.n_failed;
}

static bool write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  if (!file) return false;
  bool written = fputs(text, file) >= 0;
  return fclose(file) == 0 && written;
}

static void one(uint64_t seed, int index, const char *const *targets, int n_targets, bool more, summary *total) {
  /* Hashed, since states that differ by a multiple of the generator's step give one sequence, shifted. */
  uint64_t which = (uint64_t)index;
  SCOPED trial_case c = {.memory = arena_create(), .random = seed};
  c.random = random_next(&c.random) ^ random_next(&which);
  random_spec drawn = random_spec_draw(c.memory, &c.random, more);
  const char *target = targets[random_below(&c.random, n_targets)];
  unsigned dtypes = (unsigned[]){1, 1, 1 | 2, 4, 1 | 4, 2}[random_below(&c.random, 6)];
  int optimize = random_below(&c.random, 6) ? 1 : 3;
  const char *path =
      arena_printf(c.memory, "random_%llu_%d%s_%d.lua", (unsigned long long)seed, index, more ? "_more" : "", getpid());
  if (!write_text(path, drawn.text)) {
    fprintf(stderr, "cannot write %s\n", path);
    exit(2);
  }
  summary here = {0};
  c.spec = loader_load(c.memory, path, DSL_DIR, drawn.n_defines, drawn.define);
  bool passed = c.spec && run_case(&c, target, dtypes, optimize, &here);
  if (c.spec && !on_gpu && index % GRADIENTS == 5) passed = gradients_agree(&c, target) && passed;
  if (c.spec && compact(c.spec)) {
    total->rows = fmaxl(total->rows, here.rows);
    total->entries = fmaxl(total->entries, here.entries);
    total->compact++;
  }
  if (passed) {
    remove(path);
  } else {
    total->failed++;
    printf("FAILED: seed %llu case %d, target %s, dtypes %u, -O%d; kept as %s", (unsigned long long)seed, index, target,
           dtypes, optimize, path);
    for (int i = 0; i < drawn.n_defines; i++) printf(" -D %s=%s", drawn.define[i].name, drawn.define[i].value);
    printf("\n%s\n", drawn.text);
  }
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
  int count = argc > 2 ? atoi(argv[2]) : 300, first = argc > 3 ? atoi(argv[3]) : 0;
  SCOPED arena *a = arena_create();
  const char **targets;
  on_gpu = argc > 4 && strncmp(argv[4], "sm_", 3) == 0;
  bool all = argc <= 4 || strcmp(argv[4], "all") == 0;
  int n_targets = trial_targets(a, all ? NULL : argv[4], &targets);
  if (n_targets == 0) return 77;
  printf("seed %llu, cases %d to %d\n", (unsigned long long)seed, first, first + count - 1);
  summary total = {0};
  for (int i = first; i < first + count; i++) one(seed, i, targets, n_targets, argc > 5, &total);
  printf("%d of %d failed; %d compact groups, largest errors 2^%.2Lf (rows), 2^%.2Lf (rotor entries)\n", total.failed,
         count, total.compact, log2l(total.rows), log2l(total.entries));
  return total.failed != 0;
}
