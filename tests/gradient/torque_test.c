/* Torques: what phases, generators and positions gain of rows, from y and from x, against differences of the
 * reference's matrices, for every description with a closed form and for algebras that no stock one has; and their
 * entire functions.
 */
#include "algebra/torque.h"
#include "algebra/torque_group.h"
#include "forms/form.h"
#include "hand_spec.h"
#include "scoped.h"
#include "test.h"
#include "variants.h"
#include "verify/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one block of one head under variation ---- */

typedef struct trial_block {
  arena *memory;
  const spec *spec;
  int head, block;
  double positions[SPEC_MAX_AXES];
  const double **operands;
  long double x[SPEC_MAX_BLADES], g[SPEC_MAX_BLADES];
  const char *name;
} trial_block;

static void matrix_of(const trial_block *t, long double *matrix) {
  reference_block(t->spec, t->positions, t->operands, t->head, t->block, matrix);
}

static long double loss(const trial_block *t) {
  int n = t->spec->n_components;
  long double matrix[SPEC_MAX_BLADES * SPEC_MAX_BLADES], sum = 0;
  matrix_of(t, matrix);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) sum += t->g[i] * matrix[i * n + j] * t->x[j];
  return sum;
}

static long double difference(const trial_block *t, double *number) {
  static const double weight[4] = {1, -8, 8, -1}, place[4] = {-2, -1, 1, 2};
  const double step = 0x1p-15, here = *number;
  long double sum = 0;
  for (int i = 0; i < 4; i++) {
    *number = here + place[i] * step;
    sum += weight[i] * loss(t);
  }
  *number = here;
  return sum / (12 * (long double)step);
}

static void torques(const trial_block *t, const torque_basis *basis, torque_frame frame, double *tau) {
  int n = t->spec->n_components;
  long double matrix[SPEC_MAX_BLADES * SPEC_MAX_BLADES], y[SPEC_MAX_BLADES] = {0}, gx[SPEC_MAX_BLADES] = {0};
  matrix_of(t, matrix);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      y[i] += matrix[i * n + j] * t->x[j];
      gx[j] += matrix[i * n + j] * t->g[i];
    }
  const long double *left = frame == TORQUE_OF_Y ? t->g : gx, *right = frame == TORQUE_OF_Y ? y : t->x;
  for (int k = 0; k < basis->count; k++) {
    long double sum = 0;
    for (int i = 0; i < basis->element[k].n_entries; i++) {
      const torque_entry *e = &basis->element[k].entry[i];
      sum += e->sign * left[e->row] * right[e->column];
    }
    tau[k] = (double)sum;
  }
}

static void assert_near(const trial_block *t, const char *what, int which, long double got, long double exact) {
  bool near = fabsl(got - exact) <= 2e-10L * (1 + fabsl(exact));
  if (!near)
    print_error("%s, head %d block %d, %s %d: %.12Lg, should be %.12Lg\n", t->name, t->head, t->block, what, which, got,
                exact);
  assert_true(near);
}

/* The operand's elements that leaves name, against differences of each; positions likewise. */
static void compare(trial_block *t, const adjoint_scatter *list, int count, const expr_environment *env) {
  const spec *s = t->spec;
  SCOPED arena *scratch = arena_create();
  int nodes = expr_pool_count(s->pool);
  expr_memo memo = {arena_array(scratch, long double, nodes + 1), arena_alloc(scratch, (size_t)nodes + 1)};
  long double position[SPEC_MAX_AXES] = {0};
  for (int i = 0; i < count; i++) {
    const expr *x = list[i].leaf;
    if (x->op == EXPR_POSITION) position[x->index] += expr_eval_known(list[i].gradient, env, &memo);
    if (x->op != EXPR_OPERAND) continue;
    int32_t place = x->offsets[(x->n_heads > 1 ? t->head : 0) * s->n_blocks + t->block];
    long double sum = 0;
    for (int j = 0; j < count; j++) { /* leaves that name the same element */
      const expr *other = list[j].leaf;
      if (other->op != EXPR_OPERAND || other->index != x->index) continue;
      if (other->offsets[(other->n_heads > 1 ? t->head : 0) * s->n_blocks + t->block] == place)
        sum += expr_eval_known(list[j].gradient, env, &memo);
    }
    assert_near(t, "element", place, sum, difference(t, (double *)&t->operands[x->index][place]));
  }
  for (int axis = 0; axis < s->n_axes; axis++)
    assert_near(t, "axis", axis, position[axis], difference(t, &t->positions[axis]));
}

static void check_block(trial_block *t, uint64_t *random) {
  const spec *s = t->spec;
  for (int i = 0; i < s->n_components; i++) {
    t->x[i] = random_uniform(random, -1, 1);
    t->g[i] = random_uniform(random, -1, 1);
  }
  torque_basis basis;
  torque_basis_of(t->memory, s, &basis);
  assert_true(basis.count <= SPEC_MAX_BIVECTORS);
  const expr *tau[SPEC_MAX_BIVECTORS];
  for (int k = 0; k < basis.count; k++)
    tau[k] = expr_cotangent(s->pool, k, DEPENDS_POSITION | DEPENDS_BLOCK | DEPENDS_HEAD);
  for (torque_frame frame = TORQUE_OF_Y; frame <= TORQUE_OF_X; frame++) {
    const adjoint_output *outputs;
    const adjoint_scatter *list;
    int n_outputs = torque_outputs(t->memory, &basis, frame, tau, &outputs);
    int count = adjoint_scatters(t->memory, s->pool, outputs, n_outputs, ADJOINT_OPERANDS | ADJOINT_POSITIONS, &list);
    for (int i = 0; i < count; i++) assert_false(list[i].gradient->is_f32);
    double values[SPEC_MAX_BIVECTORS];
    torques(t, &basis, frame, values);
    expr_environment env = {.head = t->head,
                            .block = t->block,
                            .blocks = s->n_blocks,
                            .positions = t->positions,
                            .operands = t->operands,
                            .cotangents = values};
    compare(t, list, count, &env);
  }
}

/* At the origin, near it, at moderate positions. */
static void check_places(trial_block *t, uint64_t *random) {
  static const double reach[] = {0, 1e-9, 0.01, 2};
  const spec *s = t->spec;
  for (size_t i = 0; i < sizeof reach / sizeof *reach; i++) {
    t->head = random_below(random, s->heads);
    t->block = random_below(random, s->n_blocks);
    for (int axis = 0; axis < s->n_axes; axis++)
      t->positions[axis] = (float)random_uniform(random, -reach[i], reach[i]);
    check_block(t, random);
  }
}

/* ---- descriptions ---- */

static bool has_torques(const spec *s) {
  const form *f = form_of(s);
  return f && (f->kind == FORM_BLADES || f->kind == FORM_DENSE_FOUR);
}

static const double **copied(arena *a, const spec *s, const trial_operands *operands) {
  const double **copy = arena_array(a, const double *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    int64_t size = 1;
    for (int d = 0; d < s->operand[i].rank; d++) size *= s->operand[i].shape[d];
    copy[i] = memcpy(arena_array(a, double, size + 1), operands->values[i], sizeof(double) * (size_t)size);
  }
  return copy;
}

static bool check_spec_file(const variant *v, bool inverse, uint64_t *random) {
  loader_define define[VARIANT_MAX_DEFINES + 1];
  memcpy(define, v->define, sizeof v->define);
  define[v->n_defines] = (loader_define){"inverse", "true"};
  SCOPED trial_block t = {.memory = arena_create(), .name = v->name};
  t.spec = loader_load(t.memory, v->file, DSL_DIR, v->n_defines + inverse, define);
  assert_non_null(t.spec);
  bool has = has_torques(t.spec);
  if (has) {
    trial_operands operands = trial_random_operands(t.memory, t.spec, NUMBER_F32, random);
    t.operands = copied(t.memory, t.spec, &operands);
    check_places(&t, random);
  }
  return has;
}

TEST(descriptions_agree_with_differences) {
  SCOPED arena *memory = arena_create();
  variant *variants;
  uint64_t random = 3;
  int count = variants_read(memory, SPECS_DIR, VARIANTS, NULL, &variants), checked = 0;
  for (int i = 0; i < count; i++)
    if (check_spec_file(&variants[i], false, &random)) checked += check_spec_file(&variants[i], true, &random);
  assert_true(checked >= 12);
}

TEST(algebras_agree_with_differences) {
  static const spec_algebra algebras[] = {{2, 0, 0}, {3, 0, 0}, {4, 0, 0}, {5, 0, 0}, {1, 1, 0}, {2, 0, 1}, {3, 1, 0},
                                          {2, 2, 0}, {2, 1, 1}, {0, 3, 0}, {0, 4, 0}, {1, 2, 2}, {3, 0, 2}};
  uint64_t random = 4;
  for (size_t i = 0; i < sizeof algebras / sizeof *algebras; i++)
    for (int combine = COMBINE_SUM; combine <= COMBINE_SYMMETRIC; combine++)
      for (int variation = 0; variation < 4; variation++) {
        int n = algebras[i].p + algebras[i].q + algebras[i].r;
        hand_request request = {.algebra = algebras[i],
                                .combine = (spec_combine)combine,
                                .axes = 3,
                                .blocks = 2,
                                .heads = 2,
                                .grades = n < 4 && variation ? (2u << n) - 1 : 2,
                                .learned = true,
                                .basis_plane = combine >= COMBINE_PRODUCT && variation == 3,
                                .inverse = variation == 2,
                                .amplitude = variation == 1 ? 0.75 : 1};
        SCOPED trial_block t = {.memory = arena_create()};
        t.name = arena_printf(t.memory, "Cl(%d,%d,%d) combine %d variation %d", algebras[i].p, algebras[i].q,
                              algebras[i].r, combine, variation);
        t.spec = hand_spec(t.memory, &request, &random);
        t.operands = (const double **)hand_operands(t.memory, t.spec, &random);
        for (int k = 0; k < t.spec->n_axes * t.spec->heads * t.spec->n_blocks; k++)
          ((double *)t.operands[0])[k] = (float)t.operands[0][k];
        check_places(&t, &random);
      }
}

/* Bivectors of all ten planes: of axis 0 a given one, whose coefficients gain what operands of the other axes say times
 * random numbers, and random ones of the others. */
static void mix_five(arena *a, spec *s, const double *given, uint64_t *random) {
  int numbers = s->heads * s->n_blocks;
  for (int axis = 0; axis < s->n_axes; axis++) {
    spec_bivector *g = &s->generator[axis];
    g->count = 0;
    for (int i = 0; i < 5; i++)
      for (int j = i + 1; j < 5; j++) {
        int32_t *offsets = arena_array(a, int32_t, numbers);
        for (int k = 0; k < numbers; k++) offsets[k] = (1 + g->count % (s->n_axes - 1)) * numbers + k;
        const expr *learned = expr_operand(s->pool, 0, s->heads, offsets);
        const expr *weight = expr_const(s->pool, random_uniform(random, -1, 1));
        const expr *from = expr_const(s->pool, axis ? random_uniform(random, -1, 1) : given[g->count]);
        g->blade[g->count] = 1u << i | 1u << j;
        g->coefficient[g->count++] = axis ? from : expr_add(s->pool, from, expr_mul(s->pool, weight, learned));
      }
  }
}

/* e12, e13, e14, e15, e23, e24, e25, e34, e35, e45: a bivector of no kind; one whose squares are equal in Cl(5,0), one
 * that is null in Cl(4,1), one that is null and turns, one whose squares are conjugate in Cl(3,2), one whose
 * squares are a number and its negative in Cl(3,1,1), one plane. Operands
 * at 0 leave M at a multiple of them, and those at 1e-9 near one. */
TEST(mixed_planes_agree_with_differences) {
  static const double points[][10] = {{.5, -.3, .4, .6, -.7, .2, .1, .8, -.4, .3},
                                      {.6, 0, -.8, 0, .48, 0, .64, .36, 0, -.48},
                                      {0, 0, .5, .5, 0, 0, 0, 0, 0, 0},
                                      {1, 0, 0, 0, 0, 0, 0, 0, .5, .5},
                                      {0, 1, .7, 0, 0, .7, -1, 0, 0, 0},
                                      {1, 1, 1, 0, 1, 1, 0, 1, 0, 0},
                                      {1, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
  static const spec_algebra algebras[] = {{5, 0, 0}, {4, 1, 0}, {3, 2, 0}, {0, 5, 0}, {3, 1, 1}, {3, 0, 2}};
  static const double others[] = {1, 0, 1e-9};
  uint64_t random = 8;
  for (size_t i = 0; i < sizeof algebras / sizeof *algebras; i++)
    for (size_t k = 0; k < sizeof points / sizeof *points; k++)
      for (int variation = 0; variation < 3; variation++) {
        spec_combine combine = k ? COMBINE_SUM : (spec_combine)(COMBINE_SUM + variation + (i % 2));
        hand_request request = {.algebra = algebras[i],
                                .combine = combine,
                                .axes = 3,
                                .blocks = 1,
                                .heads = 1,
                                .grades = i == 1 && k == 0 ? 6 : 2,
                                .learned = true,
                                .inverse = k % 2,
                                .amplitude = 1};
        SCOPED trial_block t = {.memory = arena_create()};
        spec *s = hand_spec(t.memory, &request, &random);
        mix_five(t.memory, s, points[k], &random);
        t.spec = s;
        t.name = arena_printf(t.memory, "five vectors of Cl(%d,%d,%d), point %d, variation %d", s->algebra.p,
                              s->algebra.q, s->algebra.r, (int)k, variation);
        t.operands = (const double **)hand_operands(t.memory, s, &random);
        for (int axis = 0; axis < s->n_axes; axis++)
          ((double *)t.operands[0])[axis] = axis ? (float)(t.operands[0][axis] * others[k ? variation : 0]) : 1.5;
        check_places(&t, &random);
      }
}

/* Makes a function of every operation on rotors with learned weights, and of each mean, in two and three dimensions. */
static spec_function *some_function(arena *a, spec *s, int which) {
  spec_function *f = arena_new(a, spec_function);
  const expr *half = expr_const(s->pool, 0.5), *third = expr_const(s->pool, 1.0 / 3),
             *back = expr_const(s->pool, -0.75);
  int32_t *offsets = arena_array(a, int32_t, s->heads * s->n_blocks);
  for (int i = 0; i < s->heads * s->n_blocks; i++) offsets[i] = i;
  const expr *learned = expr_unary(s->pool, EXPR_EXP, expr_operand(s->pool, 0, s->heads, offsets));
  spec_rotor nodes[] = {
      {.op = ROTOR_AXIS, .axis = 0},
      {.op = ROTOR_AXIS, .axis = 1},
      {.op = ROTOR_AXIS, .axis = 2},
      {.op = ROTOR_CHORDAL, .n_args = 3, .arg = {0, 1, 2}, .factor = {third, third, third}},
      {.op = ROTOR_CHORDAL, .n_args = 2, .arg = {0, 1}, .factor = {learned, half}},
      {.op = ROTOR_CHORDAL, .n_args = 4, .arg = {0, 1, 2, 3}, .factor = {learned, half, half, third}},
      {.op = ROTOR_INVERSE, .n_args = 1, .arg = {2}},
      {.op = ROTOR_PRODUCT, .n_args = 2, .arg = {1, 6}},
      {.op = ROTOR_LOG, .n_args = 1, .arg = {7}},
      {.op = ROTOR_LOG, .n_args = 1, .arg = {0}},
      {.op = ROTOR_SUM, .n_args = 2, .arg = {8, 9}, .factor = {learned, back}},
      {.op = ROTOR_EXP, .n_args = 1, .arg = {10}},
      {.op = ROTOR_PRODUCT, .n_args = 2, .arg = {11, 2}},
  };
  static const int last[] = {3, 4, 5, 12};
  *f = (spec_function){"of a test", last[which] + 1, arena_array(a, spec_rotor, last[which] + 1)};
  memcpy(f->node, nodes, sizeof *nodes * (size_t)f->count);
  return f;
}

TEST(functions_agree_with_differences) {
  static const spec_algebra algebras[] = {{2, 0, 0}, {3, 0, 0}, {0, 3, 0}};
  uint64_t random = 6;
  for (size_t i = 0; i < sizeof algebras / sizeof *algebras; i++)
    for (int which = 0; which < 4; which++)
      for (int inverse = 0; inverse < 2; inverse++) {
        hand_request request = {.algebra = algebras[i],
                                .combine = COMBINE_PRODUCT,
                                .axes = 3,
                                .blocks = 2,
                                .heads = 2,
                                .grades = which % 2 ? 6 : 2,
                                .learned = true,
                                .inverse = inverse,
                                .amplitude = 1};
        SCOPED trial_block t = {.memory = arena_create()};
        spec *s = hand_spec(t.memory, &request, &random);
        s->combine = COMBINE_FUNCTION;
        s->function = some_function(t.memory, s, which);
        assert_true(spec_validate(s));
        t.name =
            arena_printf(t.memory, "Cl(%d,%d,0) function %d inverse %d", s->algebra.p, s->algebra.q, which, inverse);
        t.spec = s;
        t.operands = (const double **)hand_operands(t.memory, s, &random);
        for (int k = 0; k < s->n_axes * s->heads * s->n_blocks; k++)
          ((double *)t.operands[0])[k] = (float)t.operands[0][k];
        check_places(&t, &random);
      }
}

/* ---- the basis ---- */

/* E_k act on the block as the reference's generators do, and their commutators are what the table says. */
TEST(elements_are_closed_under_commutators) {
  static const spec_algebra algebras[] = {{3, 0, 0}, {5, 0, 0}, {2, 1, 1}};
  static const int dimensions[] = {3, 10, 6};
  uint64_t random = 5;
  for (int i = 0; i < 3; i++) {
    hand_request request = {.algebra = algebras[i],
                            .combine = COMBINE_PRODUCT,
                            .axes = 2,
                            .blocks = 1,
                            .heads = 1,
                            .grades = 6,
                            .amplitude = 1};
    SCOPED arena *memory = arena_create();
    const spec *s = hand_spec(memory, &request, &random);
    torque_basis b;
    torque_basis_of(memory, s, &b);
    assert_int_equal(b.count, dimensions[i]);
    int n = s->n_components;
    int (*e)[SPEC_MAX_BLADES * SPEC_MAX_BLADES] = arena_alloc(memory, sizeof *e * SPEC_MAX_BIVECTORS);
    for (int k = 0; k < b.count; k++)
      for (int j = 0; j < b.element[k].n_entries; j++)
        e[k][b.element[k].entry[j].row * n + b.element[k].entry[j].column] = b.element[k].entry[j].sign;
    for (int x = 0; x < b.count; x++)
      for (int y = 0; y < b.count; y++)
        for (int row = 0; row < n; row++)
          for (int column = 0; column < n; column++) {
            int sum = 0;
            for (int j = 0; j < n; j++)
              sum += e[x][row * n + j] * e[y][j * n + column] - e[y][row * n + j] * e[x][j * n + column];
            int expected = b.sign[x][y] ? b.sign[x][y] * e[b.to[x][y]][row * n + column] : 0;
            assert_int_equal(sum, expected);
          }
  }
}

/* What rows accumulate is no more than is asked for. */
TEST(planes_have_one_torque) {
  static const struct {
    const char *file;
    int count;
  } specs[] = {{"rope", 1},   {"rope_axial", 1}, {"rope_mixed", 1}, {"geope3d", 3},
               {"quatro", 3}, {"care", 3},       {"geope1d", 1}};
  for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
    SCOPED arena *memory = arena_create();
    char *file = arena_printf(memory, "%s/%s.lua", SPECS_DIR, specs[i].file);
    const spec *s = loader_load(memory, file, DSL_DIR, 0, NULL);
    torque_basis basis;
    assert_non_null(s);
    torque_basis_of(memory, s, &basis);
    assert_int_equal(basis.count, specs[i].count);
  }
}

/* ---- functions ---- */

/* By their series in long double, halved until they converge at once. */
static void entire(long double square, long double *f) {
  long double sum[3] = {0}, term = 1;
  for (int k = 0; k < 400; k++) {
    for (int i = 0; i < 3; i++)
      sum[i] += term / (i == 0   ? 2 * k + 1
                        : i == 1 ? (2 * k + 1) * (2 * k + 2.0L)
                                 : (2 * k + 1) * (2 * k + 2.0L) * (2 * k + 3));
    term *= -square / ((2 * k + 1) * (2 * k + 2.0L)); /* (-square)^k / (2k)! */
  }
  memcpy(f, sum, sizeof sum);
}

TEST(functions_are_exact_everywhere) {
  SCOPED arena *memory = arena_create();
  expr_pool *pool = expr_pool_create(memory, 1);
  const double pi = 3.14159265358979323846;
  double points[] = {0, 1e-300, 1e-30, 1e-16,   1e-8, 1e-4,        0.01, 0.5, 0.999,
                     1, 1.001,  2,     pi * pi, 9.5,  4 * pi * pi, 60,   100};
  for (entire_range range = ENTIRE_TURN; range <= ENTIRE_EITHER; range++) {
    entire_functions f = entire_functions_of(pool, expr_position(pool, 0), range, false);
    const expr *x[] = {f.sine, f.cosine, f.rest};
    for (size_t i = 0; i < 2 * sizeof points / sizeof *points; i++) {
      double at = points[i / 2] * (i % 2 ? -1 : 1);
      if ((range == ENTIRE_TURN && at < 0) || (range == ENTIRE_BOOST && at > 0)) continue;
      long double exact[3];
      entire(at, exact);
      expr_environment env = {.blocks = 1, .positions = &at};
      for (int k = 0; k < 3; k++) {
        long double got = expr_eval_long(x[k], &env);
        /* At whole turns the first two are 0: their size beside it is that of 1/t and 1/t^2. */
        long double unit = fmaxl(fabsl(exact[k]), 1 / (1 + fabsl(at)));
        if (!(fabsl(got - exact[k]) <= 1e-14L * unit))
          print_error("function %d at %g: %.18Lg, should be %.18Lg\n", k, at, got, exact[k]);
        assert_true(fabsl(got - exact[k]) <= 1e-14L * unit);
      }
    }
  }
}

int main(void) { return run_listed(); }
