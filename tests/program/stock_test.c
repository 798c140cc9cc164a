/* The interpreter against the slow reference: every spec that has a program, with its variants, turned back, and with
 * tokens that are skipped. Rows of q and k at once, two batches, q and k of different numbers of heads where they may
 * be.
 *
 * Then the same in the order that schedules give loops. Nothing is rounded, so errors are those of long double and of
 * constants that were multiplied in float64.
 */
#include "cpu/schedule.h"
#include "forms/form.h"
#include "gpu/schedule.h"
#include "interpret/trial.h"
#include "plan/gradient.h"
#include "program/passes.h"
#include "scoped.h"
#include "test.h"
#include "variants.h"
#include "verify/oracle.h"
#include "verify/reference.h"
#include "verify/reference_gradient.h"

#include <math.h>
#include <string.h>

enum { BATCHES = 2, TOKENS = 7, ANY_HEADS = 3, ANY_K_HEADS = 2, LEAST_ROTORS = 10, LEAST_SPECS = 14 };
static const long double BOUND = 0x1p-40L;

static int gained_programs; /* that have been compared */

typedef struct fixture {
  arena *memory;
  const spec *spec;
  const program *encode;
  uint64_t random;
  double *positions;
  trial_operands operands;
  program_call call;
} fixture;

static void fill(fixture *f, double *values, int64_t count, double reach) {
  for (int64_t i = 0; i < count; i++) values[i] = random_uniform(&f->random, -reach, reach);
}

/* false: the spec has no program. */
static bool open_fixture(fixture *f, const variant *v, const loader_define *more) {
  loader_define define[VARIANT_MAX_DEFINES + 1];
  int n = v->n_defines;
  memcpy(define, v->define, sizeof v->define);
  if (more) define[n++] = *more;
  *f = (fixture){.memory = arena_create(), .random = 3};
  f->spec = loader_load(f->memory, v->file, DSL_DIR, n, define);
  assert_non_null(f->spec);
  f->encode = trial_program(f->memory, f->spec, "encode");
  if (!f->encode || f->spec->polynomial) { /* scores_test has those whose rows widen */
    arena_destroy(f->memory);
    return false;
  }
  const char *fault = program_fault(f->memory, f->encode);
  if (fault) fail_msg("%s: %s", v->name, fault);
  const spec *s = f->spec;
  f->positions = arena_array(f->memory, double, TOKENS * s->n_axes);
  fill(f, f->positions, TOKENS * s->n_axes, s->dense ? 4 : 60);
  f->operands = trial_random_operands(f->memory, s, NUMBER_F32, &f->random);
  f->call = (program_call){.tokens = TOKENS,
                           .batches = BATCHES,
                           .heads = {s->heads > 1 ? s->heads : ANY_HEADS, s->heads > 1 ? s->heads : ANY_K_HEADS},
                           .positions = f->positions,
                           .operands = f->operands.values,
                           .tile_tokens = 3,
                           .group_rows = 2,
                           .run_heads = 2};
  for (int tensor = 0; tensor < 2; tensor++) {
    int64_t count = BATCHES * f->call.heads[tensor] * TOKENS * s->head_dim;
    double *in = arena_array(f->memory, double, count);
    fill(f, in, count, 1);
    f->call.rows[0][tensor] = in;
    f->call.results[1][tensor] = arena_array(f->memory, long double, count);
  }
  return true;
}

/* The row that the description itself gives, and what errors of its channels are measured by. */
static void exact_row(fixture *f, oracle *o, int64_t head, int64_t token, const double *in, long double *out,
                      long double *unit) {
  const spec *s = f->spec;
  if (!s->additive) {
    oracle_row(o, 0, token, (int)head, in, out, unit);
    return;
  }
  for (int c = 0; c < s->head_dim; c++) {
    out[c] = in[c];
    unit[c] = 1;
    if (token >= s->skip_tokens)
      out[c] += reference_sum(s, f->positions + token * s->n_axes, f->operands.values, s->heads > 1 ? (int)head : 0, c);
  }
}

/* What a row of the kernel's own basis shares with the description's: inner products with the other rows, by which
 * scores are known. */
static void gives_products(fixture *f, oracle *o, const variant *v) {
  const spec *s = f->spec;
  enum { ROWS = BATCHES * TOKENS * 2 };
  static long double exact[ROWS][SPEC_MAX_HEAD_DIM], unit[SPEC_MAX_HEAD_DIM];
  static const long double *got[ROWS];
  for (int head = 0; head < f->call.heads[1]; head++) {
    int count = 0;
    for (int tensor = 0; tensor < 2; tensor++)
      for (int64_t row = 0; row < BATCHES * f->call.heads[tensor] * TOKENS; row++) {
        if (row / TOKENS % f->call.heads[tensor] != head) continue;
        exact_row(f, o, head, row % TOKENS, f->call.rows[0][tensor] + row * s->head_dim, exact[count], unit);
        got[count++] = f->call.results[1][tensor] + row * s->head_dim;
      }
    for (int i = 0; i < count; i++)
      for (int j = 0; j <= i; j++) {
        long double difference = 0;
        for (int c = 0; c < s->head_dim; c++) difference += got[i][c] * got[j][c] - exact[i][c] * exact[j][c];
        if (!(fabsl(difference) <= BOUND * s->head_dim))
          fail_msg("%s: the product of rows %d and %d of head %d is off by %.3Lg", v->name, i, j, head, difference);
      }
  }
}

static void gives_reference(const variant *v, const loader_define *more) {
  fixture f;
  if (!open_fixture(&f, v, more)) return;
  const spec *s = f.spec;
  oracle *o = oracle_create(f.memory, s, 1, TOKENS, f.positions, &f.operands);
  long double exact[SPEC_MAX_HEAD_DIM], unit[SPEC_MAX_HEAD_DIM];
  program_interpret(f.encode, &f.call);
  if (s->dense && s->dense->map == DENSE_SCHUR) {
    gives_products(&f, o, v);
    arena_destroy(f.memory);
    return;
  }
  for (int tensor = 0; tensor < 2; tensor++)
    for (int64_t row = 0; row < BATCHES * f.call.heads[tensor] * TOKENS; row++) {
      const double *in = f.call.rows[0][tensor] + row * s->head_dim;
      const long double *out = f.call.results[1][tensor] + row * s->head_dim;
      exact_row(&f, o, row / TOKENS % f.call.heads[tensor], row % TOKENS, in, exact, unit);
      for (int c = 0; c < s->head_dim; c++)
        if (!(fabsl(out[c] - exact[c]) <= (unit[c] < 0 ? 0 : BOUND * unit[c])))
          fail_msg("%s %s: row %d of %s, channel %d: %.20Lg, not %.20Lg", v->name, more ? more->name : "", (int)row,
                   tensor ? "k" : "q", c, out[c], exact[c]);
    }
  arena_destroy(f.memory);
}

/* Loops in a target's order, tokens in tiles of 3 and rows in groups of 2: the same bits, but where a target multiplies
 * matrices before rows. */
static void order_changes_nothing(const variant *v, const loader_define *more,
                                  const program *(*schedule)(arena *, const program *)) {
  fixture f;
  if (!open_fixture(&f, v, more)) return;
  const program *ordered = schedule(f.memory, f.encode);
  assert_null(program_fault(f.memory, ordered));
  long double *results[2];
  program_interpret(f.encode, &f.call);
  for (int tensor = 0; tensor < 2; tensor++) {
    results[tensor] = f.call.results[1][tensor];
    f.call.results[1][tensor] =
        arena_array(f.memory, long double, BATCHES *f.call.heads[tensor] * TOKENS * f.spec->head_dim);
  }
  program_interpret(ordered, &f.call);
  for (int tensor = 0; tensor < 2; tensor++)
    for (int64_t i = 0; i < BATCHES * f.call.heads[tensor] * TOKENS * f.spec->head_dim; i++)
      assert_true(fabsl(results[tensor][i] - f.call.results[1][tensor][i]) <= (f.spec->basis ? BOUND : 0));
  arena_destroy(f.memory);
}

/* <y', J x> = <J^T y', x> with random x and y', all rows and channels at once; J x is what remains of encoding x
 * when what comes of 0 is taken away. */
static void transpose_is_adjoint(const variant *v, const loader_define *more) {
  fixture f;
  if (!open_fixture(&f, v, more)) return;
  const program *back = program_run(f.memory, f.encode, "transpose");
  long double left = 0, right = 0, size = 0;
  int64_t counts[2];
  program_call zero = f.call, gradient = f.call;
  double *given[2];
  for (int tensor = 0; tensor < 2; tensor++) {
    int64_t count = counts[tensor] = BATCHES * f.call.heads[tensor] * TOKENS * f.spec->head_dim;
    given[tensor] = arena_array(f.memory, double, count);
    fill(&f, given[tensor], count, 1);
    zero.rows[0][tensor] = arena_array(f.memory, double, count);
    zero.results[1][tensor] = arena_array(f.memory, long double, count);
    gradient.rows[1][tensor] = given[tensor];
    gradient.results[0][tensor] = arena_array(f.memory, long double, count);
  }
  program_interpret(f.encode, &f.call);
  program_interpret(f.encode, &zero);
  program_interpret(back, &gradient);
  for (int tensor = 0; tensor < 2; tensor++)
    for (int64_t i = 0; i < counts[tensor]; i++) {
      left += given[tensor][i] * (f.call.results[1][tensor][i] - zero.results[1][tensor][i]);
      right += gradient.results[0][tensor][i] * f.call.rows[0][tensor][i];
      size += fabsl(gradient.results[0][tensor][i] * f.call.rows[0][tensor][i]);
    }
  if (!(fabsl(left - right) <= 0x1p-50L * size)) fail_msg("%s: %.20Lg and %.20Lg", v->name, left, right);
  assert_true(size > 0);
  arena_destroy(f.memory);
}

/* A basis that is known to the kernel alone is one from which nothing turns back. */
static bool turns_back(const variant *v) {
  fixture f;
  if (!open_fixture(&f, v, NULL)) return false;
  bool turns = !(f.spec->dense && f.spec->dense->map == DENSE_SCHUR);
  arena_destroy(f.memory);
  return turns;
}

/* Room for what a program reads or writes beside its rows. */
static int64_t array_elements(const fixture *f, const plan_gradient *g) {
  return (TOKENS * f->spec->heads + 1) * (g->n_scatters + g->n_torques + 1) * expr_pool_blocks(f->spec->pool);
}

static void lay_arrays(fixture *f, const program *p, const plan_gradient *g, program_call *call) {
  for (int i = 0; i < p->n_arrays; i++) call->arrays[i] = arena_array(f->memory, long double, array_elements(f, g));
}

/* By way of a table the same, to the bit. call: of the program of it all, whose arrays are filled. */
static void gains_by_table(fixture *f, const program *back, const char *entry, const plan_gradient *g,
                           const program_call *call) {
  bool from_x = strstr(entry, "from_x");
  const char *words[] = {from_x ? "encode_backward_by_table_from_x" : "encode_backward_by_table",
                         from_x ? "prepare_backward_from_x" : "prepare_backward"};
  const program *to = trial_program(f->memory, f->spec, words[0]), *from = trial_program(f->memory, f->spec, words[1]);
  if (!to || !from) { /* what is added to rows has no table */
    assert_true(f->spec->additive && !to && !from);
    return;
  }
  program_call first = *call, second = *call;
  assert_null(program_fault(f->memory, cpu_schedule(f->memory, to)));
  lay_arrays(f, to, g, &first);
  program_interpret(to, &first);
  lay_arrays(f, from, g, &second);
  second.arrays[0] = first.arrays[0];
  program_interpret(from, &second);
  assert_int_equal(from->n_arrays, back->n_arrays + 1);
  for (int i = 0; i < back->n_arrays; i++)
    for (int64_t k = 0; k < array_elements(f, g); k++)
      if (!(call->arrays[i][k] == second.arrays[i + 1][k]))
        fail_msg("%s: %s, element %d: %Lg by a table, not %Lg", f->spec->name, back->array[i].name, (int)k,
                 second.arrays[i + 1][k], call->arrays[i][k]);
}

/* What operands and positions gain by the backward programs, from y and from x, against the reference. */
static void gains_reference(const variant *v, const loader_define *more, const char *entry) {
  fixture f;
  if (!open_fixture(&f, v, more)) return;
  const spec *s = f.spec;
  const program *back = trial_program(f.memory, s, entry);
  const plan_gradient *g = back ? plan_gradient_build(f.memory, form_of(s)->plan(f.memory, s)) : NULL;
  if (!back) {
    arena_destroy(f.memory);
    return;
  }
  assert_null(program_fault(f.memory, cpu_schedule(f.memory, back)));
  reference_rows rows[2];
  program_interpret(f.encode, &f.call);
  program_call call = f.call;
  for (int tensor = 0; tensor < 2; tensor++) {
    int64_t count = BATCHES * f.call.heads[tensor] * TOKENS * s->head_dim;
    double *given = arena_array(f.memory, double, count), *kept = arena_array(f.memory, double, count);
    fill(&f, given, count, 1);
    bool from_x = strstr(entry, "from_x");
    for (int64_t i = 0; i < count; i++)
      kept[i] = from_x ? f.call.rows[0][tensor][i] : (double)f.call.results[1][tensor][i];
    call.rows[0][tensor] = given;
    call.rows[2][tensor] = kept;
    rows[tensor] = (reference_rows){.heads = f.call.heads[tensor],
                                    .x = f.call.rows[0][tensor],
                                    .g = given,
                                    .gradient = arena_array(f.memory, gradient_sum, count)};
  }
  lay_arrays(&f, back, g, &call);
  program_interpret(back, &call);
  gains_by_table(&f, back, entry, g, &call);
  gradient_sum **operands = reference_operand_sums(f.memory, s);
  gradient_sum *positions = arena_array(f.memory, gradient_sum, TOKENS * s->n_axes);
  reference_encode_backward(s, &(reference_backward){.batches = BATCHES,
                                                     .tokens = TOKENS,
                                                     .position_sets = 1,
                                                     .positions = f.positions,
                                                     .operands = f.operands.values,
                                                     .q = rows[0],
                                                     .k = rows[1],
                                                     .operand = operands,
                                                     .position = positions});
  int array = 0, blocks = expr_pool_blocks(s->pool);
  int heads = array < back->n_arrays && back->array[array].spaces & IN(HEADS) ? s->heads : 1;
  for (int head = 0; g->n_boundaries && head < heads; head++)
    for (int i = 0; i < g->n_scatters; i++)
      for (int block = 0; block < blocks; block++) {
        const expr *leaf = g->scatter[i].leaf;
        operands[leaf->index][leaf->offsets[(leaf->n_heads > 1 ? head : 0) * blocks + block]].value -=
            call.arrays[array][(head * g->n_scatters + i) * blocks + block];
      }
  array += g->n_boundaries > 0;
  for (int i = 0; i < s->n_operands; i++)
    for (int64_t k = 0; k < spec_operand_elements(&s->operand[i]); k++)
      if (!(fabsl(operands[i][k].value) <= BOUND * operands[i][k].size))
        fail_msg("%s, %s: %s, element %d: off by %Lg of %Lg", v->name, entry, s->operand[i].name, (int)k,
                 operands[i][k].value, operands[i][k].size);
  for (int i = s->skip_tokens * s->n_axes; g->has_positions && i < TOKENS * s->n_axes; i++)
    if (!(fabsl(positions[i].value - call.arrays[array][i]) <= BOUND * positions[i].size))
      fail_msg("%s, %s: position %d gains %Lg, not %Lg", v->name, entry, i, call.arrays[array][i], positions[i].value);
  gained_programs++;
  arena_destroy(f.memory);
}

static void reference(void **state) {
  static const loader_define inverse = {"inverse", "true"}, skip = {"skip_tokens", "2"};
  bool back = turns_back(*state);
  gives_reference(*state, NULL);
  if (back) gives_reference(*state, &inverse);
  gives_reference(*state, &skip);
  transpose_is_adjoint(*state, NULL);
  if (back) transpose_is_adjoint(*state, &inverse);
  transpose_is_adjoint(*state, &skip);
  for (int i = 0; i < 3; i++) {
    const loader_define *more[] = {NULL, &inverse, &skip};
    if (i == 1 && !back) continue;
    gains_reference(*state, more[i], "encode_backward");
    gains_reference(*state, more[i], "encode_backward_from_x");
  }
  order_changes_nothing(*state, NULL, cpu_schedule);
  order_changes_nothing(*state, &skip, cpu_schedule);
  order_changes_nothing(*state, NULL, gpu_schedule);
  order_changes_nothing(*state, &skip, gpu_schedule);
}

int main(void) {
  SCOPED arena *a = arena_create();
  variant *variants;
  int count = variants_read(a, SPECS_DIR, VARIANTS, NULL, &variants), specs = 0;
  for (int i = 0; i < count; i++) {
    fixture f;
    if (!open_fixture(&f, &variants[i], NULL)) continue;
    specs += variants[i].n_defines == 0;
    list_row(variants[i].name, reference, &variants[i]);
    arena_destroy(f.memory);
  }
  int failed = run_listed();
  if (gained_programs < 6 * LEAST_ROTORS) { /* and one that loses its gradients, too */
    print_error("%d programs of gradients\n", gained_programs);
    failed++;
  }
  if (specs < LEAST_SPECS) { /* a form that loses its programs is a failure here */
    print_error("%d specs have a program\n", specs);
    failed++;
  }
  return failed;
}
