/* The interpreter against the golden outputs, and against itself: a table changes no bit, nor do tokens in tiles.
 *
 * The bound is reference_test's, with two bits more for frequencies that were multiplied in float64.
 */
#include "cases.h"
#include "interpret/trial.h"
#include "program/passes.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

/* Golden cases whose kernels have a program. */
enum { LEAST_ENCODES = 26, LEAST_PREPARES = 26 };

typedef struct fixture {
  arena *memory;
  const golden_case *golden;
  spec *spec;
  const golden_array *x, *positions;
  int64_t batch, heads, tokens;
  trial_operands operands;
} fixture;

static fixture load(const golden_case *c) {
  fixture f = {.memory = arena_create(), .golden = c, .x = golden_input(c, "x")};
  f.positions = golden_input(c, "positions");
  const double **operands;
  f.spec = golden_load(f.memory, c, SPECS_DIR, DSL_DIR, &operands);
  assert_non_null(f.spec);
  f.operands = trial_given_operands(f.memory, f.spec, operands);
  f.batch = f.x->shape[0], f.heads = f.x->shape[1], f.tokens = f.x->shape[2];
  return f;
}

/* Rows of one batch are one call: batches may have positions of their own. */
static program_call call_of(const fixture *f, int64_t batch, long double *out) {
  int64_t row = f->heads * f->tokens * f->spec->head_dim;
  const double *positions = f->positions->values + (f->positions->rank == 3 ? batch * f->tokens * f->spec->n_axes : 0);
  program_call call = {.tokens = f->tokens,
                       .batches = 1,
                       .heads = {f->heads},
                       .positions = positions,
                       .operands = f->operands.values,
                       .tile_tokens = 3,
                       .group_rows = 2,
                       .run_heads = 2};
  call.rows[0][0] = f->x->values + batch * row;
  call.results[1][0] = out;
  return call;
}

static long double bound_of(const fixture *f) {
  double phase = 0;
  int64_t places = f->positions->rank == 3 ? f->batch * f->tokens : f->tokens;
  for (int64_t n = 0; n < places; n++)
    phase = fmax(phase, trial_largest_phase(f->spec, f->positions->values + n * f->spec->n_axes, &f->operands));
  return 1e-12L + 0x1p-50L * phase * (f->spec->dense ? f->spec->n_components : 1);
}

static void encode_gives_golden(void **state) {
  SCOPED fixture f = load(*state);
  const program *p = trial_program(f.memory, f.spec, "encode");
  assert_null(program_fault(f.memory, p));
  int64_t row = f.heads * f.tokens * f.spec->head_dim;
  long double *out = arena_array(f.memory, long double, row), worst = 0;
  for (int64_t b = 0; b < f.batch; b++) {
    program_call call = call_of(&f, b, out);
    program_interpret(p, &call);
    for (int64_t i = 0; i < row; i++) worst = fmaxl(worst, fabsl(out[i] - f.golden->out.values[b * row + i]));
  }
  print_message("             largest difference %.2Lg, bound %.2Lg\n", worst, bound_of(&f));
  assert_true(worst < bound_of(&f));
}

/* The value that a table may hold; -1: none. */
static int tabled_value(const program *p) {
  for (int v = 0; v < p->n_values; v++)
    if (p->value[v].maker->is_tabled) return v;
  return -1;
}

static void table_changes_nothing(void **state) {
  SCOPED fixture f = load(*state);
  const program *encode = program_run(f.memory, trial_program(f.memory, f.spec, "encode"), "product"),
                *prepare = trial_program(f.memory, f.spec, "prepare");
  assert_null(program_fault(f.memory, prepare));
  int64_t row = f.heads * f.tokens * f.spec->head_dim;
  long double *plain = arena_array(f.memory, long double, row), *tabled = arena_array(f.memory, long double, row);
  int value = tabled_value(encode);
  assert_true(value >= 0);
  int64_t numbers = program_numbers(encode, value);
  program_call call = call_of(&f, 0, plain);
  program_interpret(encode, &call);
  call.arrays[0] = arena_array(f.memory, long double, f.tokens *f.heads *numbers);
  program_interpret(prepare, &call);
  call.tables[value] = call.arrays[0];
  const double *nowhere[SPEC_MAX_RANK] = {NULL};
  if (encode->value[value].kind == KIND_NUMBERS) { /* neither is read */
    call.positions = NULL;
    call.operands = encode->value[value].maker->n_arguments ? call.operands : nowhere;
  }
  call.results[1][0] = tabled;
  program_interpret(encode, &call);
  for (int64_t i = 0; i < row; i++) assert_true(plain[i] == tabled[i]);
}

int main(void) {
  SCOPED arena *a = arena_create();
  const golden_case *cases;
  int count = golden_read(a, GOLDEN_DIR, "cases.lua", &cases), encodes = 0, prepares = 0;
  for (int i = 0; i < count; i++) {
    SCOPED fixture f = load(&cases[i]);
    bool encode = trial_program(f.memory, f.spec, "encode"), prepare = trial_program(f.memory, f.spec, "prepare");
    if (encode) list_row(cases[i].name, encode_gives_golden, &cases[i]);
    if (prepare) list_row(cases[i].name, table_changes_nothing, &cases[i]);
    encodes += encode, prepares += prepare;
  }
  int failed = run_listed();
  /* A form that loses its programs is a failure here. */
  if (encodes < LEAST_ENCODES || prepares < LEAST_PREPARES) {
    print_error("%d cases have a program, %d one of tables\n", encodes, prepares);
    failed++;
  }
  return failed;
}
