/* What `prepare` promises: entries of exp(M) and of its product with its transpose, ||M|| up to 500, by a table and
 * without one, in float32 and in float64, of many rows a matrix and of two, where the action of the exponential may be
 * taken; and that a table of one precision is no table of the other.
 *
 * An argument names one target; without, all that this machine runs.
 */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/oracle.h"
#include "verify/reference.h"

#include <math.h>
#include <string.h>

enum { NOT_RUNNABLE = 77, TOKENS = 5, MOST_BLOCK = 64 };
static const double NORMS[TOKENS] = {1, 20, 100, 300, 500};
static const long double BOUND = 0x1p-22L;

static const char *wanted; /* target, or NULL */

typedef struct precision_case {
  const char *name, *line;
} precision_case;

static const precision_case cases[] = {
    {"liere2", "liere head_dim=64 heads=2 block=2"},
    {"liere3", "liere head_dim=64 heads=2 block=3"},
    {"liere4", "liere head_dim=64 heads=2 block=4"},
    {"liere5", "liere head_dim=64 heads=2 block=5"},
    {"liere8", "liere head_dim=64 heads=2 block=8"},
    {"liere8_many", "liere head_dim=136 heads=2 block=8"},
    {"liere9", "liere head_dim=64 heads=2 block=9"},
    {"liere16_inverse", "liere head_dim=64 heads=2 block=16 inverse=true"},
    {"liere33", "liere head_dim=64 heads=2 block=33"},
    {"liere64", "liere head_dim=64 heads=2 block=64"},
    {"comrope_ap", "comrope_ap head_dim=64 heads=2 block=8"},
    {"comrope_ld", "comrope_ld head_dim=64 heads=2 block=16"},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

typedef struct fixture {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  loaded_kernel *loaded;
  double *values; /* [TOKENS][axes] */
  DLTensor *positions;
  trial_operands operands;
} fixture;

/* Each token's largest norm of M is the one listed: M is linear in positions. */
static void place(fixture *f) {
  int P = f->spec->n_axes;
  uint64_t random = 11;
  f->values = arena_array(f->memory, double, TOKENS *P);
  for (int n = 0; n < TOKENS; n++) {
    double *r = f->values + n * P;
    for (int axis = 0; axis < P; axis++) r[axis] = random_uniform(&random, 0.5, 1);
    double now = trial_largest_phase(f->spec, r, &f->operands);
    for (int axis = 0; axis < P; axis++) r[axis] *= NORMS[n] / now;
  }
  f->positions = tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){TOKENS, P}, f->values);
}

static fixture fixture_of(arena *a, const precision_case *which, const char *prepare, const char *target) {
  fixture f = {.memory = a, .spec = described(a, "%s prepare=%s", which->line, prepare)};
  uint64_t random = 7;
  f.operands = trial_random_operands(a, f.spec, NUMBER_F32, &random);
  place(&f);
  f.loaded = held(trial_load(a, f.spec, target, PEGEN_DTYPE_F32, 2));
  f.kernel = run_kernel(f.loaded);
  return f;
}

static pegen_args table_of(const fixture *f) {
  pegen_args args = {.struct_size = sizeof(pegen_args),
                     .n_operands = f->kernel->n_operands,
                     .operands = f->operands.tensors,
                     .positions = f->positions};
  args.table_bytes = f->kernel->table_bytes(&args);
  assert_true(args.table_bytes > 0);
  args.table = aligned_alloc(64, (args.table_bytes + 63) / 64 * 64);
  memset(args.table, 0, args.table_bytes);
  assert_int_equal(f->kernel->prepare(&args, 0, 1), 0);
  return args;
}

static int encode(const fixture *f, const pegen_args *table, const DLTensor *in, DLTensor *out) {
  pegen_args args = {.struct_size = sizeof(pegen_args),
                     .table = table->table,
                     .table_bytes = table->table_bytes,
                     .q = in,
                     .q_out = out};
  return f->kernel->encode(&args, 0, 1);
}

/* The largest entry of R R^T - I of a block, columns of R lying in the batches of `out`. */
static long double skewed(const fixture *f, const DLTensor *out, int head, int token, int block) {
  int n = f->spec->n_components, blocks = f->spec->n_blocks;
  static long double r[MOST_BLOCK][MOST_BLOCK];
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      r[i][j] = *(float *)tensor_at(out, j, head, token, f->spec->channel[i * blocks + block]);
  long double worst = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j <= i; j++) {
      long double sum = i == j ? -1 : 0;
      for (int k = 0; k < n; k++) sum += r[i][k] * r[j][k];
      worst = fmaxl(worst, fabsl(sum));
    }
  return worst;
}

static void check_orthogonal(const fixture *f, const DLTensor *out, long double *worst) {
  const spec *s = f->spec;
  for (int head = 0; head < s->heads; head++)
    for (int token = 0; token < TOKENS; token++)
      for (int block = 0; block < s->n_blocks; block++) {
        long double norm = reference_norm(s, f->values + token * s->n_axes, f->operands.values, head, block);
        long double scale = s->dense->is_f64 ? 1 : fmaxl(1, norm);
        *worst = fmaxl(*worst, skewed(f, out, head, token, block) / scale);
      }
}

static void check_bounds(const fixture *f, const char *what, const DLTensor *out, oracle *exact) {
  trial_error entries = {0};
  long double orthogonal = 0;
  trial_compare_entries(exact, out, 0, TOKENS, &entries);
  check_orthogonal(f, out, &orthogonal);
  print_message("%s, %s: entries 2^%.1Lf, orthogonality 2^%.1Lf\n", what,
                f->spec->dense->is_f64 ? "float64" : "float32", log2l(entries.error), log2l(orthogonal));
  if (entries.spoilt || entries.error > BOUND) fail_msg("%s", trial_error_text(f->memory, &entries));
  if (!(orthogonal <= BOUND)) fail_msg("orthogonality");
}

/* Batch by batch: each matrix serves one row of q and one of k. */
static void encode_each(const fixture *f, const DLTensor *in, DLTensor *out) {
  for (int64_t batch = 0; batch < in->shape[0]; batch++) {
    int64_t shape[4] = {1, in->shape[1], in->shape[2], in->shape[3]};
    DLTensor from = *in, to = *out;
    from.shape = to.shape = shape;
    from.data = tensor_at(in, batch, 0, 0, 0);
    to.data = tensor_at(out, batch, 0, 0, 0);
    from.byte_offset = to.byte_offset = 0;
    assert_int_equal(trial_call(f->kernel, f->positions, &f->operands, &from, &to, NULL, NULL, 1), 0);
  }
}

/* Does encode take the action of the exponential for two rows of a matrix of norm 1? Its last bits are others then. */
static bool acts(const fixture *f) {
  const spec *s = f->spec;
  return !s->dense->is_f64 && s->n_components > 8 && s->heads > 1;
}

static void check_precision(const precision_case *which, const fixture *f) {
  pegen_args table = table_of(f);
  oracle *exact = oracle_create(f->memory, f->spec, 1, TOKENS, f->values, &f->operands);
  DLTensor *in = trial_unit_rows(f->memory, f->spec, NUMBER_F32, f->spec->heads, TOKENS);
  DLTensor *out = tensor_copy(f->memory, in), *formed = tensor_copy(f->memory, in);
  assert_int_equal(encode(f, &table, in, out), 0);
  check_bounds(f, arena_printf(f->memory, "%s by a table", which->name), out, exact);
  assert_int_equal(trial_call(f->kernel, f->positions, &f->operands, in, formed, NULL, NULL, 1), 0);
  check_bounds(f, which->name, formed, exact);
  tensor_randomize(out, &(uint64_t){3});
  encode_each(f, in, out);
  check_bounds(f, arena_printf(f->memory, "%s, two rows a matrix", which->name), out, exact);
  assert_int_equal(tensor_identical(out, formed), !acts(f));
  free(table.table);
}

static void check_tables_apart(const fixture *narrow, const fixture *wide) {
  pegen_args table = table_of(narrow), other = table_of(wide);
  DLTensor *in = trial_unit_rows(narrow->memory, narrow->spec, NUMBER_F32, narrow->spec->heads, TOKENS),
           *out = tensor_copy(narrow->memory, in);
  assert_int_equal(table.table_bytes, other.table_bytes);
  bool same = !strcmp(narrow->kernel->digest, wide->kernel->digest); /* closed forms that are float64 in any case */
  if (same) assert_memory_equal(table.table, other.table, table.table_bytes);
  assert_int_equal(encode(wide, &table, in, out), same ? 0 : PEGEN_ERROR_TABLE);
  assert_int_equal(encode(narrow, &other, in, out), same ? 0 : PEGEN_ERROR_TABLE);
  free(table.table), free(other.table);
}

static void promises_hold(void **state) {
  const precision_case *which = *state;
  SCOPED arena *a = arena_create();
  const char **targets;
  int count = trial_targets(a, wanted, &targets);
  for (int i = 0; i < count; i++) {
    fixture narrow = fixture_of(a, which, "float32", targets[i]), wide = fixture_of(a, which, "float64", targets[i]);
    assert_false(narrow.spec->dense->is_f64);
    assert_true(wide.spec->dense->is_f64);
    check_precision(which, &narrow);
    check_precision(which, &wide);
    check_tables_apart(&narrow, &wide);
    run_unload(narrow.loaded);
    run_unload(wide.loaded);
  }
}

int main(int argc, char **argv) {
  wanted = argc > 1 ? argv[1] : NULL;
  if (wanted && !trial_runnable(wanted)) return NOT_RUNNABLE;
  for (int i = 0; i < CASE_COUNT; i++) list_row(cases[i].name, promises_hold, &cases[i]);
  return run_listed();
}
