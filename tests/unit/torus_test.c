/* Which dense blocks are seen to commute, and what their sums of angles are; small ones as vectors. */
#include "algebra/dense_vectors.h"
#include "algebra/torus.h"
#include "plan/dense.h"
#include "scoped.h"
#include "test.h"
#include "verify/reference.h"

#include <math.h>

enum { HEADS = 2, BLOCKS = 3, B = 4, AXES = 3 };

/* Three axes, whose phases are the rows of `phase` and whose matrices begin at the elements given, alike for all heads.
 */
static spec *description(arena *a, int b, const double phase[AXES][BLOCKS], const int32_t offset[AXES][BLOCKS]) {
  spec *s = arena_new(a, spec);
  spec_dense *dense = arena_new(a, spec_dense);
  s->name = "x", s->file = "x.lua";
  s->n_axes = AXES, s->heads = HEADS, s->n_components = b, s->n_blocks = BLOCKS, s->head_dim = b * BLOCKS;
  s->amplitude = 1;
  s->pool = expr_pool_create(a, BLOCKS);
  s->n_operands = 1;
  s->operand = arena_new(a, spec_operand);
  *s->operand = (spec_operand){.name = "f", .rank = 3, .shape = {AXES * BLOCKS, b, b}};
  int *channel = arena_array(a, int, b *BLOCKS);
  for (int i = 0; i < b; i++)
    for (int g = 0; g < BLOCKS; g++) channel[i * BLOCKS + g] = g * b + i;
  s->channel = channel;
  for (int axis = 0; axis < AXES; axis++) {
    s->axis[axis] = axis == 0 ? "t" : axis == 1 ? "h" : "w";
    s->order[axis] = axis;
    s->angle[axis] = expr_mul(s->pool, expr_table(s->pool, 1, phase[axis]), expr_position(s->pool, axis));
    dense->generator[axis] = (spec_skew){0, SKEW_DIFFERENCE, 1, offset[axis]};
  }
  s->dense = dense;
  assert_true(spec_validate(s));
  return s;
}

static const int32_t one_a_block[AXES][BLOCKS] = {{0, 16, 32}, {0, 16, 32}, {0, 16, 32}};
static const int32_t one_an_axis[AXES][BLOCKS] = {{0, 16, 32}, {48, 64, 80}, {96, 112, 128}};
static const double all_axes[AXES][BLOCKS] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
static const double axis_a_block[AXES][BLOCKS] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};

static double angle_at(const spec *s, const torus *t, int block) {
  const double positions[AXES] = {1, 10, 100};
  expr_environment env = {.block = block, .blocks = s->n_blocks, .positions = positions};
  return expr_eval(t->angle, &env);
}

TEST(one_matrix_a_block_commutes) {
  SCOPED arena *a = arena_create();
  torus t;
  const spec *s = description(a, B, all_axes, one_a_block);
  torus_find(a, s, &t);
  assert_null(t.why_not);
  assert_int_equal(t.generator.n_heads, 1);
  for (int g = 0; g < BLOCKS; g++) {
    assert_int_equal(t.generator.offset[g], 16 * g);
    assert_true(angle_at(s, &t, g) == all_axes[0][g] + 10 * all_axes[1][g] + 100 * all_axes[2][g]);
  }
}

TEST(one_axis_a_block_commutes) {
  SCOPED arena *a = arena_create();
  torus t;
  const spec *s = description(a, B, axis_a_block, one_an_axis);
  torus_find(a, s, &t);
  assert_null(t.why_not);
  for (int g = 0; g < BLOCKS; g++) {
    assert_int_equal(t.generator.offset[g], one_an_axis[g][g]);
    assert_true(angle_at(s, &t, g) == (g == 0 ? 1 : g == 1 ? 10 : 100));
  }
}

TEST(matrices_of_their_own_are_not_seen_to_commute) {
  SCOPED arena *a = arena_create();
  torus t;
  torus_find(a, description(a, B, all_axes, one_an_axis), &t);
  assert_string_equal(t.why_not, "axes 't' and 'h' turn block 0 by matrices of their own");
  static const double two_in_the_last[AXES][BLOCKS] = {{1, 1, 0}, {0, 0, 1}, {0, 0, 1}};
  torus_find(a, description(a, B, two_in_the_last, one_an_axis), &t);
  assert_string_equal(t.why_not, "axes 'h' and 'w' turn block 2 by matrices of their own");
}

/* A block that no axis turns is fine: its angle is 0. */
TEST(silent_blocks_commute) {
  SCOPED arena *a = arena_create();
  torus t;
  static const double silent[AXES][BLOCKS] = {{1, 0, 0}, {0, 0, 0}, {0, 0, 2}};
  const spec *s = description(a, B, silent, one_an_axis);
  torus_find(a, s, &t);
  assert_null(t.why_not);
  assert_true(angle_at(s, &t, 1) == 0);
}

TEST(heads_may_differ) {
  SCOPED arena *a = arena_create();
  torus t;
  spec *s = description(a, B, axis_a_block, one_an_axis);
  spec_dense dense = *s->dense;
  static const int32_t by_head[HEADS * BLOCKS] = {0, 16, 32, 48, 64, 80};
  for (int axis = 0; axis < AXES; axis++) dense.generator[axis].n_heads = HEADS, dense.generator[axis].offset = by_head;
  s->dense = &dense;
  torus_find(a, s, &t);
  assert_null(t.why_not);
  assert_int_equal(t.generator.n_heads, HEADS);
  for (int i = 0; i < HEADS * BLOCKS; i++) assert_int_equal(t.generator.offset[i], by_head[i]);
}

/* An output in the generators' basis needs one; without, the description is refused. */
TEST(schur_needs_a_torus) {
  SCOPED arena *a = arena_create();
  spec *s = description(a, B, all_axes, one_a_block), *other = description(a, B, all_axes, one_an_axis);
  spec_dense dense = *s->dense, other_dense = *other->dense;
  dense.map = other_dense.map = DENSE_SCHUR;
  s->dense = &dense, other->dense = &other_dense;
  assert_non_null(plan_dense_build(a, s));
  assert_null(plan_dense_build(a, other));
}

/* Blocks of 2 and 3 channels as bivectors: the reference's Clifford algebra and its matrices agree. */
TEST(small_blocks_are_vectors) {
  SCOPED arena *a = arena_create();
  double raw[AXES * BLOCKS * 9];
  for (int i = 0; i < AXES * BLOCKS * 9; i++) raw[i] = sin(1.7 * i + 0.3);
  const double *operands[] = {raw}, positions[AXES] = {0.4, -1.3, 2.1};
  for (int b = 2; b <= 3; b++)
    for (int rule = 0; rule < 2; rule++) {
      int32_t offset[AXES][BLOCKS];
      for (int i = 0; i < AXES * BLOCKS; i++) offset[i / BLOCKS][i % BLOCKS] = i * b * b;
      spec *s = description(a, b, all_axes, (const int32_t (*)[BLOCKS])offset);
      spec_dense dense = *s->dense;
      for (int axis = 0; axis < AXES; axis++) dense.generator[axis].rule = (spec_skew_rule)rule;
      s->dense = &dense;
      assert_true(dense_is_vectors(s));
      const spec *vectors = dense_as_vectors(a, s);
      assert_true(spec_validate(vectors));
      for (int g = 0; g < BLOCKS; g++) {
        long double x[9], y[9];
        reference_block(s, positions, operands, 0, g, x);
        reference_block(vectors, positions, operands, 0, g, y);
        for (int i = 0; i < b * b; i++) assert_true(fabsl(x[i] - y[i]) < 1e-15L);
      }
    }
}

int main(void) { return run_listed(); }
