/* Gradients of expressions against differences of their values in long double: every operation in its interior, at its
 * kinks and behind choices, random graphs, closed forms of rotors, and how large what comes out is.
 */
#include "algebra/block.h"
#include "base/diag.h"
#include "base/number.h"
#include "hand_spec.h"
#include "scoped.h"
#include "spec/adjoint.h"
#include "spec/size.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 2, HEADS = 2, AXES = 3, ELEMENTS = 8, LEAVES = AXES + ELEMENTS };

/* What an expression is evaluated at, and everything in it that can be varied. */
typedef struct point {
  double positions[AXES], elements[ELEMENTS], row[ELEMENTS], cotangents[4];
  int head, block;
} point;

typedef struct fixture {
  arena *memory;
  expr_pool *pool;
  const expr *x, *y, *z, *c; /* positions, and the gradient that comes in */
} fixture;

static fixture begin(void) {
  fixture f = {.memory = arena_create()};
  f.pool = expr_pool_create(f.memory, BLOCKS);
  f.x = expr_position(f.pool, 0);
  f.y = expr_position(f.pool, 1);
  f.z = expr_position(f.pool, 2);
  f.c = expr_cotangent(f.pool, 0, DEPENDS_POSITION | DEPENDS_BLOCK);
  return f;
}

static long double value(expr_pool *pool, const expr *x, const point *at) {
  const double *operands[] = {at->elements}, *inputs[] = {at->row};
  expr_environment env = {.head = at->head,
                          .block = at->block,
                          .blocks = expr_pool_blocks(pool),
                          .positions = at->positions,
                          .operands = operands,
                          .inputs = inputs,
                          .channels = at->row,
                          .cotangents = at->cotangents};
  SCOPED arena *scratch = arena_create();
  int nodes = expr_pool_count(pool);
  expr_memo memo = {arena_array(scratch, long double, nodes + 1), arena_alloc(scratch, (size_t)nodes + 1)};
  long double result = expr_eval_known(x, &env, &memo);
  return result;
}

/* The derivative by a number of the point, by differences over five points: 2^-15 is exact in what the tests use. */
static long double difference(expr_pool *pool, const expr *x, point *at, double *number) {
  const double step = 0x1p-15, here = *number;
  static const double weight[4] = {1, -8, 8, -1}, place[4] = {-2, -1, 1, 2};
  long double sum = 0;
  for (int i = 0; i < 4; i++) {
    *number = here + place[i] * step;
    sum += weight[i] * value(pool, x, at);
  }
  *number = here;
  return sum / (12 * (long double)step);
}

static double coarse(uint64_t *random, double low, double high) {
  return rint(random_uniform(random, low, high) * 0x1p10) * 0x1p-10;
}

static point random_point(uint64_t *random, double low, double high) {
  point p = {.head = random_below(random, HEADS), .block = random_below(random, BLOCKS)};
  for (int i = 0; i < AXES; i++) p.positions[i] = coarse(random, low, high);
  for (int i = 0; i < ELEMENTS; i++) p.elements[i] = coarse(random, low, high);
  for (int i = 0; i < ELEMENTS; i++) p.row[i] = coarse(random, low, high);
  for (int i = 0; i < 4; i++) p.cotangents[i] = coarse(random, -2, 2);
  return p;
}

static const expr *gradient(fixture *f, const expr *of, const expr *by) {
  const expr *result;
  adjoint_of(f->memory, f->pool, &(adjoint_output){of, f->c}, 1, &by, 1, &result);
  return result;
}

/* c times the difference, for all positions. */
static void assert_gradients(fixture *f, const expr *e, point *at, long double tolerance) {
  const expr *by[AXES] = {f->x, f->y, f->z};
  for (int axis = 0; axis < AXES; axis++) {
    long double exact = at->cotangents[0] * difference(f->pool, e, at, &at->positions[axis]);
    long double got = value(f->pool, gradient(f, e, by[axis]), at);
    if (!(fabsl(got - exact) <= tolerance * (1 + fabsl(exact))))
      print_error("axis %d: %Lg, should be %Lg\n", axis, got, exact);
    assert_true(fabsl(got - exact) <= tolerance * (1 + fabsl(exact)));
  }
}

/* ---- single operations ---- */

static const expr *made(fixture *f, expr_op op) {
  static const int32_t offsets[] = {3, 1, 0, 2};
  switch (op) {
  case EXPR_CONST: return expr_const(f->pool, 2);
  case EXPR_TABLE: return expr_table(f->pool, 1, (const double[]){1, 2});
  case EXPR_POSITION: return f->x;
  case EXPR_OPERAND: return expr_operand(f->pool, 0, HEADS, offsets);
  case EXPR_INPUT: return expr_input(f->pool, 0, offsets);
  case EXPR_CHANNEL: return expr_channel(f->pool, 2);
  case EXPR_COTANGENT: return expr_cotangent(f->pool, 1, DEPENDS_BLOCK);
  case EXPR_ELEMENT: return expr_element(f->pool, 0, ELEMENTS - 1, HEADS, offsets, f->x);
  case EXPR_INPUT_AT: return expr_input_at(f->pool, 0, ELEMENTS - 1, f->x);
  case EXPR_NARROW:
  case EXPR_WIDEN: return expr_unary(f->pool, EXPR_WIDEN, expr_unary(f->pool, EXPR_NARROW, f->x));
  case EXPR_ROUND32: return f->x; /* differences see its stairs; random_graphs has no place for it either */
  case EXPR_TERMS: /* of a sum alone */
  case EXPR_SUM: {
    const expr *k = expr_terms(f->pool, 3, (const double[]){1, -2, 5}), *y = expr_mul(f->pool, k, f->y);
    const expr *differs = expr_mul(f->pool, expr_unary(f->pool, EXPR_SINQ, expr_mul(f->pool, k, f->x)), y);
    return expr_sum(f->pool, 3, expr_add(f->pool, differs, f->x)); /* x gains of each term */
  }
  case EXPR_SIN_FOLDED:
  case EXPR_COS_FOLDED: return expr_unary(f->pool, op, expr_mul(f->pool, f->x, expr_const(f->pool, 0.5)));
  case EXPR_SELECT: return expr_select(f->pool, expr_binary(f->pool, EXPR_LESS, f->x, f->y), f->y, f->z);
  default: break;
  }
  return expr_op_arity(op) == 1 ? expr_unary(f->pool, op, f->x) : expr_binary(f->pool, op, f->x, f->y);
}

/* Below 1 no argument is at a kink, and all logarithms and roots are real and tables read inside. */
TEST(every_operation_has_its_derivative) {
  uint64_t random = 5;
  for (int op = 0; op < EXPR_OP_COUNT; op++) {
    SCOPED fixture f = begin();
    const expr *e = made(&f, (expr_op)op);
    for (int sample = 0; sample < 50; sample++) {
      point at = random_point(&random, 0.25, 0.9);
      if (fabs(at.positions[0] - at.positions[1]) < 0.01) continue;
      for (int sign = 0;
           sign < (op == EXPR_SQRT || op == EXPR_LOG || op == EXPR_ELEMENT || op == EXPR_INPUT_AT ? 1 : 2); sign++) {
        assert_gradients(&f, e, &at, 1e-10L);
        /* Twice below what is asked for, on its own and as what it was. */
        assert_gradients(&f, expr_mul(f.pool, e, expr_add(f.pool, e, f.z)), &at, 1e-10L);
        at.positions[0] = -at.positions[0];
      }
    }
  }
}

/* What leaves gain, each in its block and head. */
TEST(leaves_gain_what_differences_say) {
  uint64_t random = 6;
  SCOPED fixture f = begin();
  static const expr_op leaf[] = {EXPR_OPERAND, EXPR_INPUT, EXPR_CHANNEL, EXPR_ELEMENT, EXPR_INPUT_AT};
  const expr *e = f.x;
  for (int i = 0; i < 5; i++) e = expr_mul(f.pool, expr_add(f.pool, made(&f, leaf[i]), f.y), e);
  const adjoint_scatter *list;
  int count = adjoint_scatters(f.memory, f.pool, &(adjoint_output){e, f.c}, 1, 15, &list);
  assert_int_equal(count, 7); /* and two positions */
  for (int sample = 0; sample < 50; sample++) {
    point at = random_point(&random, 1.1, 1.9); /* the table is read one place further */
    long double elements[ELEMENTS] = {0}, row[ELEMENTS] = {0}, positions[AXES] = {0};
    for (int i = 0; i < count; i++) {
      const expr *x = list[i].leaf;
      int place = x->op == EXPR_INPUT_AT ? 0
                  : x->offsets           ? x->offsets[(x->n_heads > 1 ? at.head : 0) * BLOCKS + at.block]
                                         : x->index;
      long double gained = value(f.pool, list[i].gradient, &at);
      if (x->op == EXPR_ELEMENT || x->op == EXPR_INPUT_AT) place += (int)floorl(value(f.pool, x->arg[0], &at));
      if (x->op == EXPR_OPERAND || x->op == EXPR_ELEMENT) elements[place] += gained;
      else if (x->op == EXPR_POSITION) positions[place] += gained;
      else row[place] += gained;
    }
    for (int i = 0; i < ELEMENTS; i++) {
      long double c = at.cotangents[0], unit = 1e-10L;
      assert_true(fabsl(elements[i] - c * difference(f.pool, e, &at, &at.elements[i])) < unit);
      assert_true(fabsl(row[i] - c * difference(f.pool, e, &at, &at.row[i])) < unit);
      if (i < AXES) assert_true(fabsl(positions[i] - c * difference(f.pool, e, &at, &at.positions[i])) < unit);
    }
  }
  assert_int_equal(adjoint_scatters(f.memory, f.pool, &(adjoint_output){e, f.c}, 1, ADJOINT_INPUTS, &list), 2);
  assert_int_equal(list[0].leaf->op, EXPR_INPUT);
  assert_int_equal(list[1].leaf->op, EXPR_INPUT_AT);
  /* What is not there, or is always 0, is not listed. */
  const expr *flat = expr_unary(f.pool, EXPR_FLOOR, f.x);
  assert_int_equal(adjoint_scatters(f.memory, f.pool, &(adjoint_output){flat, f.c}, 1, 15, &list), 0);
}

/* ---- kinks and choices ---- */

TEST(at_kinks_the_derivative_is_zero) {
  static const struct {
    expr_op op;
    double x, y;
  } kinks[] = {{EXPR_ABS, 0, 0},      {EXPR_ABS, -0.0, 0},      {EXPR_SQRT, 0, 0},    {EXPR_MIN, 2, 2},
               {EXPR_MAX, 2, 2},      {EXPR_FLOOR, 3, 0},       {EXPR_FLOOR, 3.5, 0}, {EXPR_LESS, 2, 2},
               {EXPR_LESS, 1, 2},     {EXPR_MIN, -1, -1},       {EXPR_ELEMENT, 1, 0}, {EXPR_ELEMENT, 1.25, 0},
               {EXPR_INPUT_AT, 1, 0}, {EXPR_INPUT_AT, 1.25, 0}, {EXPR_MAX, 0, -0.0},  {EXPR_CONST, 0.5, 0},
               {EXPR_TABLE, 1, 1}};
  SCOPED fixture f = begin();
  for (size_t i = 0; i < sizeof kinks / sizeof *kinks; i++) {
    const expr *e = made(&f, kinks[i].op);
    point at = {.positions = {kinks[i].x, kinks[i].y, 0}, .cotangents = {3}};
    assert_true(value(f.pool, gradient(&f, e, f.x), &at) == 0);
    assert_true(value(f.pool, gradient(&f, e, f.y), &at) == 0);
  }
  /* A norm at the origin, and no NaN from 0 times what a root's derivative is there. */
  const expr *square = expr_add(f.pool, expr_mul(f.pool, f.x, f.x), expr_mul(f.pool, f.y, f.y));
  point origin = {.cotangents = {3}};
  assert_true(value(f.pool, gradient(&f, expr_unary(f.pool, EXPR_SQRT, square), f.x), &origin) == 0);
  assert_true(value(f.pool, gradient(&f, expr_binary(f.pool, EXPR_ATAN2, f.x, f.y), f.x), &origin) == 0);
}

/* A value that is finite where what it is made of is not has the limits of gradients as its gradients. */
TEST(saturated_values_have_limits) {
  SCOPED fixture f = begin();
  expr_pool *pool = f.pool;
  const expr *one = expr_const(pool, 1), *size = expr_unary(pool, EXPR_ABS, f.x);
  const expr *log = expr_unary(pool, EXPR_LOG, size), *inverse = expr_div(pool, f.y, expr_mul(pool, size, size));
  const expr *grown = expr_unary(pool, EXPR_EXP, expr_div(pool, f.y, size));
  const expr *saturated[] = {expr_unary(pool, EXPR_EXP, expr_mul(pool, f.y, log)),
                             expr_unary(pool, EXPR_EXP, expr_neg(pool, inverse)),
                             expr_div(pool, one, expr_add(pool, one, grown)),
                             expr_unary(pool, EXPR_TANH, inverse),
                             expr_unary(pool, EXPR_TANH, expr_mul(pool, f.y, log)),
                             expr_unary(pool, EXPR_SIGMOID, inverse),
                             expr_unary(pool, EXPR_SIGMOID, expr_mul(pool, f.y, log)),
                             expr_unary(pool, EXPR_SOFTPLUS, expr_mul(pool, f.y, log))};
  for (size_t i = 0; i < sizeof saturated / sizeof *saturated; i++) {
    point at = {.positions = {0, 1.5, 0}, .cotangents = {3}}, near = {.positions = {0.75, 1.5, 0}, .cotangents = {3}};
    assert_true(isfinite(value(pool, saturated[i], &at)));
    assert_true(value(pool, gradient(&f, saturated[i], f.x), &at) == 0);
    assert_true(value(pool, gradient(&f, saturated[i], f.y), &at) == 0);
    assert_gradients(&f, saturated[i], &near, 1e-9L);
  }
}

/* A quotient whose denominator is infinite is 0 there, and has the slope that differences beside that place say. */
TEST(quotients_at_poles_have_slopes) {
  SCOPED fixture f = begin();
  expr_pool *pool = f.pool;
  const expr *one = expr_const(pool, 1), *inverse = expr_div(pool, one, f.x), *share = expr_div(pool, f.y, f.x);
  const expr *denominators[] = {
      expr_add(pool, one, inverse),                                                /* x / (x + 1) */
      expr_sub(pool, f.z, expr_div(pool, expr_const(pool, 2), f.x)),
      expr_add(pool, expr_div(pool, one, f.y), inverse),                           /* resistors side by side */
      share,
      expr_add(pool, expr_mul(pool, f.z, inverse), f.y),
      expr_neg(pool, expr_add(pool, expr_div(pool, share, f.z), f.z)),
      expr_add(pool, one, expr_div(pool, f.z, expr_mul(pool, f.x, f.y))),
      expr_add(pool, one, expr_div(pool, one, expr_sub(pool, one, inverse))),      /* the pole of a pole */
      expr_add(pool, one, expr_div(pool, one, expr_mul(pool, f.x, f.x))),          /* flat */
      expr_add(pool, expr_unary(pool, EXPR_EXP, f.y), expr_unary(pool, EXPR_WIDEN, inverse)),
  };
  for (size_t i = 0; i < sizeof denominators / sizeof *denominators; i++)
    for (int top = 0; top < 2; top++) {
      const expr *e = expr_div(pool, top ? expr_add(pool, f.y, f.x) : one, denominators[i]);
      point at = {.positions = {0, 1.5, 0.75}, .cotangents = {3}},
            near = {.positions = {0.3125, 1.5, 0.75}, .cotangents = {3}};
      assert_gradients(&f, e, &at, 1e-8L);
      assert_gradients(&f, expr_mul(pool, e, expr_add(pool, e, f.z)), &at, 1e-8L);
      assert_gradients(&f, e, &near, 1e-9L);
      /* Not chosen, it leaves no trace. */
      const expr *chosen = expr_select(pool, expr_binary(pool, EXPR_LESS, f.x, one), f.y, e);
      assert_true(value(pool, gradient(&f, chosen, f.x), &at) == 0);
    }
  /* Two poles at once have no slope, and what comes in is no NaN. */
  const expr *both = expr_div(pool, one, expr_add(pool, inverse, expr_div(pool, one, f.y)));
  assert_true(value(pool, gradient(&f, both, f.x), &(point){.cotangents = {3}}) == 0);
}

/* What was not chosen leaves no trace, though it and its derivatives are infinite or NaN. */
TEST(choices_pass_one_branch_alone) {
  SCOPED fixture f = begin();
  expr_pool *pool = f.pool;
  const expr *zero = expr_const(pool, 0), *is_positive = expr_binary(pool, EXPR_LESS, zero, f.x);
  const expr *log = expr_unary(pool, EXPR_LOG, f.x), *root = expr_unary(pool, EXPR_SQRT, f.x);
  const expr *inverse = expr_div(pool, f.y, f.x),
             *log1p = expr_unary(pool, EXPR_LOG1P, expr_sub(pool, f.x, expr_const(pool, 1)));
  const expr *grown = expr_unary(pool, EXPR_EXP, expr_mul(pool, f.y, expr_div(pool, f.z, f.x)));
  const expr *turned = expr_unary(pool, EXPR_COSQ, inverse);
  const expr *wild[] = {log,
                        root,
                        inverse,
                        log1p,
                        grown,
                        turned,
                        expr_mul(pool, log, inverse),
                        expr_div(pool, f.y, root),
                        expr_mul(pool, inverse, expr_mul(pool, log, expr_unary(pool, EXPR_SINQ, log)))};
  const expr *tame = expr_mul(pool, f.y, expr_mul(pool, f.x, f.x));
  for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
    const expr *chosen[] = {
        expr_select(pool, is_positive, wild[i], tame),
        expr_select(pool, expr_binary(pool, EXPR_LESS, f.x, expr_const(pool, 0x1p-40)), tame, wild[i])};
    for (int side = 0; side < 2; side++) {
      for (double x = -1; x <= 0; x++) {
        point at = {.positions = {x, 1.5, 0.5}, .cotangents = {2}};
        assert_true(value(pool, gradient(&f, chosen[side], f.x), &at) == 2 * 2 * x * 1.5L);
        assert_true(value(pool, gradient(&f, chosen[side], f.y), &at) == 2 * x * x);
        assert_true(value(pool, gradient(&f, chosen[side], f.z), &at) == 0);
      }
      point inside = {.positions = {0.75, 1.5, 0.5}, .cotangents = {2}};
      assert_gradients(&f, chosen[side], &inside, 1e-10L);
    }
  }
  /* The larger and the smaller choose, too. */
  const expr *larger = expr_binary(pool, EXPR_MAX, log, zero);
  point at = {.positions = {0, 0, 0}, .cotangents = {2}};
  assert_true(value(pool, gradient(&f, larger, f.x), &at) == 0);
  /* What is also reached without a choice says what it is. */
  const expr *both = expr_add(pool, expr_select(pool, is_positive, log, zero), inverse);
  assert_true(!isfinite(value(pool, gradient(&f, both, f.x), &(point){.positions = {0, 1, 0}, .cotangents = {2}})));
}

/* ---- graphs ---- */

/* Smooth, of moderate size and derivatives: what differences can follow. */
static const expr *grown(fixture *f, const expr *a, const expr *b, uint64_t *random) {
  expr_pool *pool = f->pool;
  const expr *one = expr_const(pool, 1), *square = expr_mul(pool, a, a), *half = expr_const(pool, 0.5);
  switch (random_below(random, 19)) {
  case 0: return expr_mul(pool, expr_add(pool, a, b), half);
  case 1: return expr_mul(pool, expr_sub(pool, a, b), half);
  case 2: return expr_mul(pool, expr_mul(pool, a, b), half);
  case 3: return expr_div(pool, b, expr_add(pool, one, square));
  case 4: return expr_unary(pool, EXPR_SQRT, expr_add(pool, one, square));
  case 5: return expr_unary(pool, EXPR_EXP, expr_neg(pool, expr_unary(pool, EXPR_SQRT, expr_add(pool, one, square))));
  case 6: return expr_unary(pool, EXPR_LOG, expr_add(pool, one, square));
  case 7: return expr_unary(pool, EXPR_LOG1P, square);
  case 8: return expr_unary(pool, EXPR_SINQ, a);
  case 9: return expr_unary(pool, EXPR_COSQ, a);
  case 10: return expr_unary(pool, EXPR_WIDEN, expr_unary(pool, EXPR_NARROW, a));
  case 11: return expr_mul(pool, a, expr_table(pool, 1, (const double[]){0.5, -0.75}));
  case 12: return expr_unary(pool, EXPR_SIN_FOLDED, expr_mul(pool, a, expr_const(pool, 1.0 / 16)));
  case 13: return expr_unary(pool, EXPR_COS_FOLDED, expr_mul(pool, a, expr_const(pool, 1.0 / 16)));
  case 14: return expr_unary(pool, EXPR_TANH, a);
  case 15: return expr_binary(pool, EXPR_ATAN2, a, expr_add(pool, one, expr_mul(pool, b, b)));
  case 16: return expr_unary(pool, EXPR_SIGMOID, a);
  case 17: return expr_unary(pool, EXPR_SOFTPLUS, a);
  default: return expr_neg(pool, a);
  }
}

TEST(random_graphs_agree_with_differences) {
  enum { NODES = 30, OUTPUTS = 3 };
  uint64_t random = 7;
  for (int round = 0; round < 60; round++) {
    SCOPED fixture f = begin();
    const expr *node[NODES] = {f.x, f.y, f.z, expr_const(f.pool, 0.5)};
    for (int n = 4; n < NODES; n++)
      node[n] = grown(&f, node[random_below(&random, n)], node[random_below(&random, n)], &random);
    /* Several outputs at once are one sum. */
    adjoint_output outputs[OUTPUTS];
    const expr *sum = expr_const(f.pool, 0), *by[AXES] = {f.x, f.y, f.z}, *gradients[AXES];
    for (int i = 0; i < OUTPUTS; i++) {
      outputs[i] = (adjoint_output){node[NODES - 1 - i], expr_cotangent(f.pool, i, DEPENDS_BLOCK)};
      sum = expr_add(f.pool, sum, expr_mul(f.pool, outputs[i].value, outputs[i].cotangent));
    }
    adjoint_of(f.memory, f.pool, outputs, OUTPUTS, by, AXES, gradients);
    for (int sample = 0; sample < 5; sample++) {
      point at = random_point(&random, -1, 1);
      for (int axis = 0; axis < AXES; axis++) {
        long double exact = difference(f.pool, sum, &at, &at.positions[axis]);
        long double got = value(f.pool, gradients[axis], &at);
        if (!(fabsl(got - exact) <= 1e-8L * (1 + fabsl(exact))))
          print_error("round %d axis %d: %Lg, should be %Lg\n", round, axis, got, exact);
        assert_true(fabsl(got - exact) <= 1e-8L * (1 + fabsl(exact)));
      }
    }
  }
}

/* The chain rule may be cut anywhere: gradients of what is in between, handed on, give the same. */
TEST(the_walk_may_stop_and_go_on) {
  uint64_t random = 8;
  SCOPED fixture f = begin();
  const expr *inner = expr_unary(f.pool, EXPR_EXP, expr_mul(f.pool, f.x, f.y));
  const expr *outer = expr_div(f.pool, expr_mul(f.pool, inner, inner), expr_add(f.pool, f.x, inner));
  const expr *nodes[] = {inner, f.x}, *upper[2], *lower;
  adjoint_of(f.memory, f.pool, &(adjoint_output){outer, f.c}, 1, nodes, 2, upper);
  adjoint_of(f.memory, f.pool, &(adjoint_output){inner, upper[0]}, 1, &f.x, 1, &lower);
  const expr *whole = expr_add(f.pool, upper[1], lower);
  for (int sample = 0; sample < 20; sample++) {
    point at = random_point(&random, 0.5, 1);
    long double exact = value(f.pool, gradient(&f, outer, f.x), &at);
    assert_true(fabsl(value(f.pool, whole, &at) - exact) < 1e-15L * fabsl(exact));
  }
  assert_ptr_equal(gradient(&f, outer, f.z), expr_const(f.pool, 0));
}

/* ---- rotors ---- */

static int entries_of(const block_program *program, adjoint_output *outputs, const expr **values) {
  int size = program->matrix.size, count = 0;
  for (int i = 0; i < size * size; i++) {
    const expr *x = program->matrix.entry[i];
    if (expr_is_fixed(x)) continue;
    values[count] = x;
    outputs[count] = (adjoint_output){x, expr_cotangent(program->spec->pool, count, DEPENDS_POSITION | DEPENDS_BLOCK)};
    count++;
  }
  return count;
}

static const hand_request ROTORS[] = {
    {.algebra = {2, 0, 0}, .combine = COMBINE_SUM, .axes = 2, .grades = 2},
    {.algebra = {3, 0, 0}, .combine = COMBINE_MEAN, .axes = 3, .grades = 2},
    {.algebra = {3, 0, 0}, .combine = COMBINE_PRODUCT, .axes = 3, .grades = 15},
    {.algebra = {3, 0, 0}, .combine = COMBINE_SYMMETRIC, .axes = 2, .grades = 2},
    {.algebra = {4, 0, 0}, .combine = COMBINE_PRODUCT, .axes = 2, .grades = 4},
    {.algebra = {3, 1, 0}, .combine = COMBINE_SUM, .axes = 2, .grades = 2},
    {.algebra = {2, 1, 1}, .combine = COMBINE_PRODUCT, .axes = 2, .grades = 2},
};
enum { ROTOR_COUNT = sizeof ROTORS / sizeof *ROTORS, MOST_ENTRIES = 64 };

static spec *rotor(arena *a, int which, uint64_t *random) {
  hand_request request = ROTORS[which];
  request.blocks = BLOCKS, request.heads = HEADS, request.learned = true, request.amplitude = 1.5;
  return hand_spec(a, &request, random);
}

/* Unrounded closed forms, by positions. */
TEST(closed_forms_agree_with_differences) {
  uint64_t random = 9;
  for (int which = 0; which < ROTOR_COUNT; which++) {
    SCOPED arena *memory = arena_create();
    spec *s = rotor(memory, which, &random);
    block_program program = {0};
    assert_true(block_build(memory, s, &program));
    adjoint_output outputs[MOST_ENTRIES];
    const expr *values[MOST_ENTRIES], *exact[MOST_ENTRIES];
    int count = entries_of(&program, outputs, values);
    adjoint_unrounded(memory, s->pool, values, count, exact);
    const expr *by[SPEC_MAX_AXES], *gradients[SPEC_MAX_AXES];
    for (int axis = 0; axis < s->n_axes; axis++) by[axis] = expr_position(s->pool, axis);
    for (int i = 0; i < count; i++) outputs[i].value = exact[i];
    adjoint_of(memory, s->pool, outputs, count, by, s->n_axes, gradients);
    double cotangents[MOST_ENTRIES], positions[SPEC_MAX_AXES];
    for (int i = 0; i < count; i++) cotangents[i] = coarse(&random, -1, 1);
    const double *const *operands = hand_operands(memory, s, &random);
    for (int axis = 0; axis < s->n_axes; axis++) positions[axis] = coarse(&random, 0.5, 1.5);
    expr_environment env = {.blocks = BLOCKS, .positions = positions, .operands = operands, .cotangents = cotangents};
    for (int axis = 0; axis < s->n_axes; axis++) {
      static const double weight[4] = {1, -8, 8, -1}, place[4] = {-2, -1, 1, 2};
      long double sum = 0, got = expr_eval_long(gradients[axis], &env);
      double here = positions[axis];
      for (int k = 0; k < 4; k++) {
        positions[axis] = here + place[k] * 0x1p-13;
        for (int i = 0; i < count; i++)
          sum += weight[k] * cotangents[i] * expr_eval_long(values[i], &env) / (12 * 0x1p-13L);
      }
      positions[axis] = here;
      if (!(fabsl(got - sum) <= 1e-8L * (1 + fabsl(sum))))
        print_error("rotor %d: %Lg, should be %Lg\n", which, got, sum);
      assert_true(fabsl(got - sum) <= 1e-8L * (1 + fabsl(sum)));
    }
  }
}

/* Sharing: what a gradient takes beside the forward expressions, of which it reads many. */
TEST(gradients_stay_small) {
  uint64_t random = 10;
  for (int which = 0; which < ROTOR_COUNT; which++) {
    SCOPED arena *memory = arena_create();
    spec *s = rotor(memory, which, &random);
    block_program program = {0};
    assert_true(block_build(memory, s, &program));
    adjoint_output outputs[MOST_ENTRIES];
    const expr *roots[MOST_ENTRIES + 64];
    const adjoint_scatter *list;
    int count = entries_of(&program, outputs, roots);
    int64_t forward = expr_size_of_all(memory, s->pool, roots, count);
    int leaves = adjoint_scatters(memory, s->pool, outputs, count, ADJOINT_OPERANDS | ADJOINT_POSITIONS, &list);
    assert_int_equal(leaves, 2 * s->n_axes);
    for (int i = 0; i < leaves; i++) roots[count + i] = list[i].gradient;
    int64_t both = expr_size_of_all(memory, s->pool, roots, count + leaves);
    if (both > 5 * forward) print_error("rotor %d: %lld with %lld\n", which, (long long)both, (long long)forward);
    assert_true(both <= 5 * forward);
  }
}

/* What no difference of rounded numbers is left in gives gradients to the last digits near the identity. */
TEST(unrounded_expressions_round_nowhere) {
  SCOPED fixture f = begin();
  expr_pool *pool = f.pool;
  const expr *narrow = expr_unary(pool, EXPR_NARROW, expr_unary(pool, EXPR_COSQ, f.x));
  const expr *row = expr_input(pool, 0, (const int32_t[]){0, 1});
  static const int32_t offsets[] = {0, 1, 2, 3};
  const expr *read =
      expr_element(pool, 0, 3, HEADS, offsets, expr_unary(pool, EXPR_WIDEN, expr_unary(pool, EXPR_NARROW, f.y)));
  const expr *rounded[] = {expr_mul(pool, expr_sub(pool, expr_const(pool, 1), narrow), row),
                           expr_select(pool, expr_binary(pool, EXPR_LESS, narrow, row), narrow, read)};
  const expr *exact[2];
  adjoint_unrounded(f.memory, pool, rounded, 2, exact);
  assert_true(rounded[0]->is_f32);
  for (int i = 0; i < 2; i++) assert_false(exact[i]->is_f32);
  const expr *less = expr_sub(pool, expr_const(pool, 1), expr_unary(pool, EXPR_COSQ, f.x));
  assert_ptr_equal(exact[0], expr_mul(pool, less, expr_unary(pool, EXPR_WIDEN, row)));
  uint64_t random = 11;
  for (int sample = 0; sample < 20; sample++) {
    point at = random_point(&random, 0.1, 0.9);
    for (int i = 0; i < 2; i++) assert_true(value(pool, rounded[i], &at) == value(pool, exact[i], &at));
  }
  /* Gradients of what is rounded are float64 all the same. */
  assert_false(gradient(&f, rounded[0], f.x)->is_f32);
}

/* ---- size ---- */

static char said[512];
static void hear(diag_kind kind, const char *file, int line, const char *text) {
  (void)kind, (void)file, (void)line;
  snprintf(said, sizeof said, "%s", text);
}

TEST(gradients_that_are_too_large_are_refused) {
  for (int large = 0; large < 2; large++) {
    SCOPED fixture f = begin();
    const expr *e = f.x;
    for (int i = 0; i < (large ? 800 : 40); i++)
      e = expr_unary(f.pool, EXPR_SINQ, expr_mul(f.pool, e, expr_add(f.pool, e, f.y)));
    spec s = {
        .file = "by hand", .line = 3, .pool = f.pool, .n_components = 1, .n_axes = 1, .axis = {"x"}, .angle = {e}};
    said[0] = 0;
    diag_send_to(hear);
    bool fits = adjoint_check_size(f.memory, &s);
    diag_send_to(NULL);
    assert_true(fits == !large);
    assert_true(!large == !strstr(said, "the gradients of the phase of axis 'x' take"));
    assert_true(!large == !strstr(said, "16384 at most"));
  }
}

int main(void) { return run_listed(); }
