/* The block matrix of every signature and combine rule, evaluated without a kernel, against
 * the reference, which multiplies multivectors and knows no closed form.
 *
 * Nothing rounds to float32 here (the interpreter does not), so what is compared is the
 * mathematics: the bound is what the closed forms' own series leave out.
 */
#include "algebra/block.h"
#include "base/number.h"
#include "hand_spec.h"
#include "scoped.h"
#include "test.h"
#include "verify/reference.h"

#include <math.h>
#include <string.h>

static const long double BOUND = 1e-11L;

static void assert_like_reference(arena *a, const spec *s, const block_program *program, const char *what,
                                  uint64_t *random) {
  int n = s->n_components;
  const double *const *operands = hand_operands(a, s, random);
  int nodes = expr_pool_count(s->pool) + 1;
  long double *expected = arena_array(a, long double, n *n), *known = arena_array(a, long double, nodes);
  void *is_known = arena_alloc(a, (size_t)nodes);
  for (int sample = 0; sample < 3; sample++) {
    double positions[SPEC_MAX_AXES] = {0}; /* the first sample: the origin */
    if (sample) hand_positions(s, random, positions);
    for (int head = 0; head < s->heads; head++)
      for (int block = 0; block < s->n_blocks; block++) {
        expr_environment env = {
            .head = head, .block = block, .blocks = s->n_blocks, .positions = positions, .operands = operands};
        long double scale = 1, worst = 0;
        expr_memo memo = {known, memset(is_known, 0, (size_t)nodes)}; /* as trees, five vectors' are large */
        reference_block(s, positions, operands, head, block, expected);
        for (int i = 0; i < n * n; i++) {
          scale = fmaxl(scale, fabsl(expected[i]));
          long double difference = fabsl(expr_eval_known(program->matrix.entry[i], &env, &memo) - expected[i]);
          worst = difference <= worst ? worst : difference; /* NaN stays */
        }
        if (!(worst <= BOUND * scale))
          print_error("%s Cl(%d,%d,%d) combine %d: %Lg of %Lg\n", what, s->algebra.p, s->algebra.q, s->algebra.r,
                      s->combine, worst, scale);
        assert_true(worst <= BOUND * scale);
      }
  }
}

static void check(const hand_request *request, const char *what, uint64_t *random) {
  SCOPED arena *a = arena_create();
  block_program program;
  const spec *s = hand_spec(a, request, random);
  assert_true(block_build(a, s, &program));
  assert_int_equal(program.matrix.size, s->n_components);
  for (int i = 0; i < s->n_components * s->n_components; i++) {
    const expr *entry = program.matrix.entry[i];
    assert_true(entry->is_f32 || entry->op == EXPR_CONST || entry->op == EXPR_TABLE);
    if (clifford_grade(s->component[i / s->n_components].blade) !=
        clifford_grade(s->component[i % s->n_components].blade))
      assert_true(expr_is_const(entry, 0));
  }
  assert_like_reference(a, s, &program, what, random);
}

/* All signatures of 2 to 4 dimensions with every rule; of 5 some, and planes of the basis. */
TEST(every_signature) {
  uint64_t random = 7;
  for (int n = 2; n <= 5; n++)
    for (int p = 0; p <= n; p++)
      for (int q = 0; p + q <= n; q++)
        for (int rule = COMBINE_SUM; rule <= COMBINE_SYMMETRIC; rule++) {
          /* The interpreter walks trees, and in more dimensions they are large. */
          static const unsigned grades[] = {0, 0, 7, 15, 1u << 1 | 1u << 3, 1u << 4};
          int blocks = n > 3 ? 1 : 2, heads = n > 3 ? 1 : 2;
          if (n == 5 && (q > 1 || rule == COMBINE_SYMMETRIC)) continue;
          hand_request request = {
              {p, q, n - p - q}, (spec_combine)rule, 2, blocks, heads, grades[n], 1, rule % 2, false, p % 2, 1.5};
          if (n < 5) check(&request, "planes", &random);
          request.basis_plane = true;
          check(&request, "basis planes", &random);
        }
}

TEST(one_axis_and_many) {
  uint64_t random = 8;
  for (int axes = 1; axes <= 5; axes++)
    for (int rule = COMBINE_SUM; rule <= COMBINE_SYMMETRIC; rule++)
      for (int inverse = 0; inverse < 2; inverse++)
        for (int learned = 0; learned < 2; learned++) {
          hand_request request = {{3, 0, 0}, (spec_combine)rule, axes, 3, 1, 2, 0, learned, false, inverse, 1};
          check(&request, "axes", &random);
        }
}

/* Two turns that undo one another, and a description that undoes itself. */
TEST(inverses_undo) {
  for (int rule = COMBINE_SUM; rule <= COMBINE_SYMMETRIC; rule++) {
    SCOPED arena *a = arena_create();
    uint64_t random = 9, again = 9, positions_random = 10;
    hand_request request = {{3, 0, 0}, (spec_combine)rule, 3, 2, 1, 2, 0, false, false, false, 2};
    block_program there, back;
    const spec *s = hand_spec(a, &request, &random);
    request.inverse = true;
    const spec *inverse = hand_spec(a, &request, &again);
    assert_true(block_build(a, s, &there) && block_build(a, inverse, &back));
    double positions[SPEC_MAX_AXES];
    hand_positions(s, &positions_random, positions);
    for (int block = 0; block < 2; block++)
      for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
          expr_environment env = {.block = block, .blocks = 2, .positions = positions};
          long double sum = 0;
          for (int k = 0; k < 3; k++)
            sum += expr_eval_long(back.matrix.entry[i * 3 + k], &env) *
                   expr_eval_long(there.matrix.entry[k * 3 + j], &env);
          assert_true(fabsl(sum - (i == j)) < BOUND);
        }
  }
}

/* All planes of a block's vectors: coefficients as given, or random ones that differ from block to block. */
static void set_generator(arena *a, spec *s, int axis, const double *coefficient, uint64_t *random) {
  spec_bivector *g = &s->generator[axis];
  int n = clifford_dimensions(s->algebra);
  g->count = 0;
  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++) {
      double *values = arena_array(a, double, s->heads * s->n_blocks);
      for (int k = 0; k < s->heads * s->n_blocks; k++)
        values[k] = coefficient ? coefficient[g->count] : random_uniform(random, -1, 1);
      g->blade[g->count] = 1u << i | 1u << j;
      g->coefficient[g->count++] = expr_table(s->pool, s->heads, values);
    }
}

/* Bivectors of four vectors that are not simple, in every signature: random ones, alone, summed and multiplied. */
TEST(split_in_every_signature) {
  uint64_t random = 21;
  for (int p = 0; p <= 4; p++)
    for (int q = 0; p + q <= 4; q++)
      for (int axes = 1; axes <= 2; axes++)
        for (int rule = COMBINE_SUM; rule <= COMBINE_SYMMETRIC; rule++) {
          SCOPED arena *a = arena_create();
          hand_request request = {
              {p, q, 4 - p - q}, (spec_combine)rule, axes, 2, 1, 1u << 1, 0, axes == 1, true, q % 2, 1};
          spec *s = hand_spec(a, &request, &random);
          block_program program;
          for (int axis = 0; axis < axes; axis++) set_generator(a, s, axis, NULL, &random);
          assert_true(block_build(a, s, &program));
          assert_like_reference(a, s, &program, "split", &random);
        }
}

/* Where the squares of the two parts are equal, one or both of them are 0, and near there. e12, e13, e14, e23, e24,
 * e34. */
TEST(split_where_parts_meet) {
  static const double points[][6] = {
      {0, 0, 0, 0, 0, 0},          /* nothing */
      {1, 0, 0, 0, 0, 1},          /* isoclinic of Cl(4,0) */
      {.6, .3, -.2, -.2, -.3, .6}, /* also one, of no plane of the basis */
      {.6, .3, -.2, .2, -.3, -.6}, /* of the other sense */
      {0, .5, .5, 0, 0, 0},        /* of Cl(3,1): null */
      {.5, 0, .5, .3, .4, .3},     /* a turn and what makes it null there */
      {1, 0, 0, 0, 0, 0},          /* one plane */
      {0, 0, 1, 0, 0, 0},          {1e-9, 0, 0, 0, 0, 1e-9},
  };
  static const double by[] = {0, 1e-16, 1e-12, 1e-9, 1e-6, 1e-3};
  static const spec_algebra algebras[] = {{4, 0, 0}, {0, 4, 0}, {3, 1, 0}, {1, 3, 0}, {2, 2, 0}, {3, 0, 1}, {2, 1, 1}};
  uint64_t random = 22;
  for (size_t i = 0; i < sizeof algebras / sizeof *algebras; i++)
    for (size_t k = 0; k < sizeof points / sizeof *points; k++)
      for (size_t j = 0; j < sizeof by / sizeof *by; j++) {
        SCOPED arena *a = arena_create();
        hand_request request = {algebras[i], COMBINE_SUM, 1, 1, 1, 1u << 1, 0, false, true, false, 1};
        spec *s = hand_spec(a, &request, &random);
        block_program program;
        double coefficient[6];
        for (int t = 0; t < 6; t++) coefficient[t] = points[k][t] + by[j] * random_uniform(&random, -1, 1);
        set_generator(a, s, 0, coefficient, NULL);
        assert_true(block_build(a, s, &program));
        assert_like_reference(a, s, &program, "parts that meet", &random);
      }
}

/* A bivector of some planes of those that set_generator gives; the list ends with 0. */
static void keep_planes(spec_bivector *g, const unsigned *planes) {
  spec_bivector all = *g;
  g->count = 0;
  for (; *planes; planes++)
    for (int e = 0; e < all.count; e++)
      if (all.blade[e] == *planes) {
        g->blade[g->count] = all.blade[e];
        g->coefficient[g->count++] = all.coefficient[e];
      }
}

/* In five dimensions: two planes apart, a rotation of three vectors and a plane, four of the vectors, and two ways to
 * mix all five. */
TEST(split_in_five_dimensions) {
  static const spec_algebra algebras[] = {{5, 0, 0}, {4, 1, 0}, {3, 1, 1}, {3, 2, 0}};
  static const unsigned planes[][5] = {{3, 12}, {3, 5, 6, 24}, {3, 5, 9, 12}, {3, 6, 12, 24}, {3, 12, 20}};
  uint64_t random = 23;
  for (size_t i = 0; i < sizeof algebras / sizeof *algebras; i++)
    for (size_t k = 0; k < sizeof planes / sizeof *planes; k++) {
      SCOPED arena *a = arena_create();
      hand_request request = {algebras[i], COMBINE_SUM, 1, 2, 1, 1u << 1, 0, true, true, false, 1};
      spec *s = hand_spec(a, &request, &random);
      block_program program;
      set_generator(a, s, 0, NULL, &random);
      keep_planes(&s->generator[0], planes[k]);
      assert_true(block_build(a, s, &program));
      assert_like_reference(a, s, &program, "five dimensions", &random);
    }
}

/* All ten planes, in every signature, alone, summed and multiplied; scaled, so that each way to the factors is taken.
 */
TEST(five_in_every_signature) {
  static const double sizes[] = {0.01, 0.4, 3};
  uint64_t random = 31;
  for (int p = 0; p <= 5; p++)
    for (int q = 0; p + q <= 5; q++)
      for (int kind = 0; kind < 4; kind++) {
        SCOPED arena *a = arena_create();
        int axes = kind == 3 ? 2 : 1;
        hand_request request = {{p, q, 5 - p - q},
                                kind == 3 ? (p % 2 ? COMBINE_SUM : COMBINE_PRODUCT) : COMBINE_SUM,
                                axes,
                                1,
                                1,
                                1u << 1,
                                0,
                                kind == 2,
                                true,
                                q % 2,
                                1};
        spec *s = hand_spec(a, &request, &random);
        block_program program;
        for (int axis = 0; axis < axes; axis++) {
          double coefficient[10];
          for (int t = 0; t < 10; t++) coefficient[t] = random_uniform(&random, -1, 1) * (kind < 3 ? sizes[kind] : 1);
          set_generator(a, s, axis, coefficient, NULL);
        }
        assert_true(block_build(a, s, &program));
        assert_like_reference(a, s, &program, "five mixed", &random);
      }
}

/* Where the squares of the two parts are equal, conjugate, one or both of them 0, and near there, large and small; all
 * planes are given, some of them 0 or nearly so. e12, e13, e14, e15, e23, e24, e25, e34, e35, e45. */
TEST(five_where_parts_meet) {
  static const double points[][10] = {
      {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},              /* nothing */
      {1, 0, 0, 0, 0, 0, 0, 1, 0, 0},              /* isoclinic in four vectors of Cl(5,0) */
      {.6, 0, -.8, 0, .48, 0, .64, .36, 0, -.48},  /* and in no four of the basis */
      {1, 0, 0, 0, 0, 0, 0, 0, 0, 0},              /* one plane */
      {0, 0, .5, .5, 0, 0, 0, 0, 0, 0},            /* of Cl(4,1): null */
      {1, 0, 0, 0, 0, 0, 0, 0, .5, .5},            /* a turn and a null plane there */
      {0, 1, .7, 0, 0, .7, -1, 0, 0, 0},           /* of Cl(2,2): conjugate */
      {0, .5, 0, .5, .5, 0, -.5, 0, 0, .3},
  };
  static const double by[] = {0, 1e-9, 1e-3}, sizes[] = {1, 6};
  static const spec_algebra algebras[] = {{5, 0, 0}, {0, 5, 0}, {4, 1, 0}, {1, 4, 0}, {3, 2, 0},
                                          {2, 3, 0}, {4, 0, 1}, {3, 1, 1}, {3, 0, 2}};
  uint64_t random = 32;
  for (size_t i = 0; i < sizeof algebras / sizeof *algebras; i++)
    for (size_t k = 0; k < sizeof points / sizeof *points; k++)
      for (size_t j = 0; j < sizeof by / sizeof *by * (sizeof sizes / sizeof *sizes); j++) {
        SCOPED arena *a = arena_create();
        hand_request request = {algebras[i], COMBINE_SUM, 1, 1, 1, 1u << 1, 0, false, true, false, 1};
        spec *s = hand_spec(a, &request, &random);
        block_program program;
        double coefficient[10], near = by[j / 2], size = sizes[j % 2];
        for (int t = 0; t < 10; t++) coefficient[t] = size * (points[k][t] + near * random_uniform(&random, -1, 1));
        set_generator(a, s, 0, coefficient, NULL);
        assert_true(block_build(a, s, &program));
        assert_like_reference(a, s, &program, "parts of five that meet", &random);
      }
}

/* (I - t t^T) D is the reference's matrix, in every dimension and with whichever components a block has. */
static void assert_mirrored_like_reference(arena *a, const spec *s, uint64_t *random) {
  int n = s->n_components;
  const expr *mirror[SPEC_MAX_BLADES];
  bool flipped[SPEC_MAX_BLADES];
  assert_true(block_mirror(a, s, mirror, flipped));
  const double *const *operands = hand_operands(a, s, random);
  long double *expected = arena_array(a, long double, n *n);
  for (int sample = 0; sample < 4; sample++) {
    double positions[SPEC_MAX_AXES] = {0}; /* the first sample: the origin */
    if (sample) hand_positions(s, random, positions);
    for (int block = 0; block < s->n_blocks; block++) {
      expr_environment env = {.block = block, .blocks = s->n_blocks, .positions = positions, .operands = operands};
      reference_block(s, positions, operands, 0, block, expected);
      for (int i = 0; i < n * n; i++) {
        long double product = expr_eval_long(mirror[i / n], &env) * expr_eval_long(mirror[i % n], &env);
        long double entry = ((i / n == i % n) - product) * (flipped[i % n] ? -1 : 1);
        assert_true(fabsl(entry - expected[i]) <= BOUND);
      }
    }
  }
}

TEST(two_reflections) {
  uint64_t random = 12;
  const unsigned vectors = 1u << 1;
  for (int n = 3; n <= 5; n++)
    for (int rule = COMBINE_SUM; rule <= COMBINE_MEAN; rule++)
      for (int inverse = 0; inverse < 2; inverse++)
        for (int learned = 0; learned < 2; learned++) {
          SCOPED arena *a = arena_create();
          hand_request request = {{n, 0, 0}, (spec_combine)rule, 2, 2, 1, vectors, 1, learned, false, inverse, 1};
          assert_mirrored_like_reference(a, hand_spec(a, &request, &random), &random);
        }
}

/* Whatever is not one rotation of vectors about axes with a vector orthogonal to all. */
TEST(no_two_reflections) {
  const unsigned vectors = 1u << 1;
  const hand_request requests[] = {
      {{3, 0, 0}, COMBINE_PRODUCT, 2, 1, 1, vectors, 0, false, false, false, 1}, /* two rotations */
      {{3, 0, 0}, COMBINE_SUM, 2, 1, 1, vectors | 1u << 2, 0, false, false, false, 1}, /* and of planes */
      {{2, 1, 0}, COMBINE_SUM, 2, 1, 1, vectors, 0, false, false, false, 1}, /* boosts */
      {{3, 0, 0}, COMBINE_SUM, 2, 1, 1, vectors, 0, false, false, false, 1.5}, /* stretched */
      {{3, 0, 0}, COMBINE_SUM, 1, 1, 1, vectors, 0, false, true, false, 1}, /* one plane */
  };
  SCOPED arena *a = arena_create();
  uint64_t random = 13;
  const expr *mirror[SPEC_MAX_BLADES];
  bool flipped[SPEC_MAX_BLADES];
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
    assert_false(block_mirror(a, hand_spec(a, &requests[i], &random), mirror, flipped));
  hand_request request = {{3, 0, 0}, COMBINE_SUM, 3, 1, 1, vectors, 0, false, true, false, 1};
  spec *s = hand_spec(a, &request, &random);
  assert_true(block_mirror(a, s, mirror, flipped)); /* e12 and e13 */
  s->generator[2].blade[0] = 6; /* and e23 */
  assert_false(block_mirror(a, s, mirror, flipped));
}

int main(void) { return run_listed(); }
