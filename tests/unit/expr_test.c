/* Expressions: what construction folds and shares, how blocks merge, what types and
 * dependences nodes get, and that no simplification changes a value by more than rounding.
 */
#include "base/number.h"
#include "scoped.h"
#include "spec/expr.h"
#include "spec/size.h"
#include "test.h"
#include "verify/dual.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 3, HEADS = 2 };

typedef struct fixture {
  arena *memory;
  expr_pool *pool;
  const expr *x, *y, *table; /* two positions; 1, 2, 3 by block */
} fixture;

static int set_up(void **state) {
  static const double values[BLOCKS] = {1, 2, 3};
  fixture *f = calloc(1, sizeof *f);
  f->memory = arena_create();
  f->pool = expr_pool_create(f->memory, BLOCKS);
  f->x = expr_position(f->pool, 0);
  f->y = expr_position(f->pool, 1);
  f->table = expr_table(f->pool, 1, values);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  arena_destroy(f->memory);
  free(f);
  return 0;
}

#define USE_FIXTURE \
  fixture *f = *state; \
  expr_pool *pool = f->pool; \
  const expr *x = f->x, *y = f->y; \
  (void)pool, (void)x, (void)y

static const expr *number(expr_pool *pool, double value) { return expr_const(pool, value); }
static void assert_const(const expr *e, double value) {
  assert_int_equal(e->op, EXPR_CONST);
  assert_true(fabs(e->value - value) <= 1e-15 * fabs(value));
}

/* ---- construction ---- */

TEST_BETWEEN(constants_fold, set_up, tear_down) {
  USE_FIXTURE;
  static const struct {
    expr_op op;
    double a, b, result;
  } cases[] = {{EXPR_ADD, 2, 3, 5},
               {EXPR_SUB, 2, 3, -1},
               {EXPR_MUL, 2, 3, 6},
               {EXPR_DIV, 3, 2, 1.5},
               {EXPR_MIN, 2, 3, 2},
               {EXPR_MAX, 2, 3, 3},
               {EXPR_LESS, 2, 3, 1},
               {EXPR_LESS, 3, 3, 0},
               {EXPR_NEG, 2, 0, -2},
               {EXPR_ABS, -2, 0, 2},
               {EXPR_SQRT, 9, 0, 3},
               {EXPR_FLOOR, -1.5, 0, -2},
               {EXPR_EXP, 1, 0, M_E},
               {EXPR_LOG, M_E, 0, 1},
               {EXPR_ROUND32, 1 + 0x1p-25, 0, 1},
               {EXPR_ROUND32, 1 + 0x1p-23 + 0x1p-24, 0, 1 + 0x1p-22},
               {EXPR_TANH, -0.5, 0, -0.46211715726000975},
               {EXPR_SIGMOID, 0, 0, 0.5},
               {EXPR_SIGMOID, 1, 0, 0.7310585786300049},
               {EXPR_SIGMOID, -40, 0, 4.248354255291589e-18},
               {EXPR_SIGMOID, -1000, 0, 0},
               {EXPR_SIGMOID, INFINITY, 0, 1},
               {EXPR_SOFTPLUS, 0, 0, M_LN2},
               {EXPR_SOFTPLUS, -40, 0, 4.248354255291589e-18},
               {EXPR_SOFTPLUS, 1000, 0, 1000},
               {EXPR_SOFTPLUS, -INFINITY, 0, 0},
               {EXPR_ATAN2, 1, -1, 2.356194490192345},
               {EXPR_ATAN2, -0.0, -2, M_PI},
               {EXPR_ATAN2, 0, -0.0, 0},
               {EXPR_SINQ, 1, 0, 1},
               {EXPR_SINQ, -1, 0, -1},
               {EXPR_COSQ, 0, 0, 1},
               {EXPR_COSQ, 2, 0, -1},
               {EXPR_SINQ, 4096, 0, 0},
               {EXPR_COSQ, 1e15 + 1, 0, 0},
               {EXPR_SINQ, 1.0 / 3, 0, 0.5},
               {EXPR_SIN_FOLDED, 0.75, 0, -M_SQRT1_2},
               {EXPR_COS_FOLDED, 1.0 / 3, 0, 0.5},
               {EXPR_SIN_FOLDED, 5, 0, 0},
               {EXPR_COS_FOLDED, -5, 0, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const expr *a = number(pool, cases[i].a), *b = number(pool, cases[i].b);
    assert_const(expr_op_arity(cases[i].op) == 1 ? expr_unary(pool, cases[i].op, a)
                                                 : expr_binary(pool, cases[i].op, a, b),
                 cases[i].result);
  }
  assert_const(expr_select(pool, number(pool, 1), number(pool, 7), number(pool, 8)), 7);
  assert_ptr_equal(expr_select(pool, number(pool, 0), x, y), y);
  assert_ptr_equal(number(pool, -0.0), number(pool, 0.0)); /* one zero */
}

TEST_BETWEEN(neutral_elements_vanish, set_up, tear_down) {
  USE_FIXTURE;
  const expr *zero = number(pool, 0), *one = number(pool, 1);
  assert_ptr_equal(expr_add(pool, zero, x), x);
  assert_ptr_equal(expr_sub(pool, x, zero), x);
  assert_ptr_equal(expr_mul(pool, one, x), x);
  assert_ptr_equal(expr_mul(pool, x, zero), zero);
  assert_ptr_equal(expr_div(pool, x, one), x);
  assert_ptr_equal(expr_sub(pool, zero, x), expr_neg(pool, x));
  assert_ptr_equal(expr_neg(pool, expr_neg(pool, x)), x);
  assert_ptr_equal(expr_mul(pool, x, number(pool, -1)), expr_neg(pool, x));
  assert_ptr_equal(expr_add(pool, x, expr_neg(pool, y)), expr_sub(pool, x, y));
}

TEST_BETWEEN(division_stays_division, set_up, tear_down) {
  USE_FIXTURE;
  assert_int_equal(expr_div(pool, x, number(pool, 49))->op, EXPR_DIV); /* floor(49 * (1 / 49)) is 0 */
  assert_ptr_equal(expr_div(pool, x, number(pool, -4)), expr_mul(pool, x, number(pool, -0.25)));
  assert_int_equal(expr_div(pool, x, number(pool, 0x1p-1074))->op, EXPR_DIV); /* its inverse is infinite */
  const double positions[] = {392, 0};
  expr_environment env = {.blocks = BLOCKS, .positions = positions};
  assert_true(expr_eval(expr_unary(pool, EXPR_FLOOR, expr_div(pool, x, number(pool, 196))), &env) == 2);
}

TEST_BETWEEN(equal_expressions_are_one, set_up, tear_down) {
  USE_FIXTURE;
  int before;
  const expr *sum = expr_add(pool, x, y);
  before = expr_pool_count(pool);
  assert_ptr_equal(expr_add(pool, y, x), sum);
  assert_ptr_equal(expr_position(pool, 0), x);
  assert_int_equal(expr_pool_count(pool), before);
  assert_true(sum->id > x->id && sum->id > y->id);
  /* Constants gather into one factor, on whatever side they stood. */
  const expr *six = expr_mul(pool, x, number(pool, 6));
  assert_ptr_equal(expr_mul(pool, number(pool, 2), expr_mul(pool, x, number(pool, 3))), six);
  assert_ptr_equal(expr_mul(pool, expr_mul(pool, x, number(pool, 2)), expr_mul(pool, y, number(pool, 3))),
                   expr_mul(pool, expr_mul(pool, x, y), number(pool, 6)));
  /* What all blocks have in common is added once. */
  assert_ptr_equal(expr_add(pool, expr_mul(pool, x, f->table), expr_mul(pool, f->table, y)),
                   expr_mul(pool, sum, f->table));
  /* Subtraction does not commute, and no two operations are confused. */
  assert_ptr_not_equal(expr_sub(pool, x, y), expr_sub(pool, y, x));
  assert_ptr_not_equal(expr_binary(pool, EXPR_MIN, x, y), expr_binary(pool, EXPR_MAX, x, y));
}

TEST_BETWEEN(parity_is_used, set_up, tear_down) {
  USE_FIXTURE;
  const expr *minus = expr_neg(pool, x);
  assert_ptr_equal(expr_unary(pool, EXPR_COSQ, minus), expr_unary(pool, EXPR_COSQ, x));
  assert_ptr_equal(expr_unary(pool, EXPR_SINQ, minus), expr_neg(pool, expr_unary(pool, EXPR_SINQ, x)));
  assert_ptr_equal(expr_unary(pool, EXPR_COS_FOLDED, minus), expr_unary(pool, EXPR_COS_FOLDED, x));
  assert_ptr_equal(expr_unary(pool, EXPR_SIN_FOLDED, minus), expr_neg(pool, expr_unary(pool, EXPR_SIN_FOLDED, x)));
  assert_ptr_equal(expr_unary(pool, EXPR_ABS, minus), expr_unary(pool, EXPR_ABS, x));
  assert_ptr_equal(expr_mul(pool, minus, expr_neg(pool, y)), expr_mul(pool, x, y));
}

TEST_BETWEEN(tables_collapse, set_up, tear_down) {
  USE_FIXTURE;
  static const double same[] = {2, 2, 2, 2, 2, 2}, rows[] = {1, 2, 3, 1, 2, 3}, all[] = {1, 2, 3, 1, 2, 4};
  assert_const(expr_table(pool, HEADS, same), 2);
  assert_ptr_equal(expr_table(pool, HEADS, rows), f->table);
  assert_int_equal(f->table->n_heads, 1);
  const expr *full = expr_table(pool, HEADS, all);
  assert_int_equal(full->n_heads, HEADS);
  assert_int_equal(full->depends, DEPENDS_BLOCK | DEPENDS_HEAD);
  assert_int_equal(f->table->depends, DEPENDS_BLOCK);
  /* Folding goes element by element, rows repeated, and its result collapses too. */
  const expr *difference = expr_sub(pool, full, f->table);
  assert_int_equal(difference->op, EXPR_TABLE);
  for (int i = 0; i < HEADS * BLOCKS; i++) assert_true(difference->table[i] == (i == 5));
  assert_const(expr_sub(pool, f->table, f->table), 0);
  assert_const(expr_div(pool, f->table, f->table), 1);
  static const int32_t one_row[] = {4, 5, 6, 4, 5, 6}, per_head[] = {4, 4, 4, 5, 5, 5};
  assert_int_equal(expr_operand(pool, 0, HEADS, one_row)->depends, DEPENDS_OPERAND | DEPENDS_BLOCK);
  assert_int_equal(expr_operand(pool, 0, HEADS, one_row)->n_heads, 1);
  assert_int_equal(expr_operand(pool, 0, HEADS, per_head)->depends, DEPENDS_OPERAND | DEPENDS_HEAD);
}

TEST_BETWEEN(types_follow_arguments, set_up, tear_down) {
  USE_FIXTURE;
  const expr *narrow = expr_unary(pool, EXPR_NARROW, x), *channel = expr_channel(pool, 0);
  assert_false(x->is_f32);
  assert_true(narrow->is_f32 && channel->is_f32);
  assert_ptr_equal(expr_unary(pool, EXPR_NARROW, narrow), narrow);
  assert_ptr_equal(expr_unary(pool, EXPR_WIDEN, x), x); /* a float64 already */
  const expr *wide = expr_unary(pool, EXPR_WIDEN, narrow);
  assert_int_equal(wide->op, EXPR_WIDEN);
  assert_false(wide->is_f32);
  assert_ptr_equal(expr_unary(pool, EXPR_NARROW, wide), narrow);
  assert_true(expr_mul(pool, narrow, channel)->is_f32);
  assert_true(expr_mul(pool, narrow, number(pool, 0.1))->is_f32); /* constants take either type */
  assert_true(expr_mul(pool, narrow, f->table)->is_f32);
  assert_false(expr_mul(pool, wide, narrow)->is_f32);
  assert_false(expr_mul(pool, x, number(pool, 0.1))->is_f32);
  /* A select has its values' type, whatever its condition's. */
  assert_true(expr_select(pool, x, narrow, channel)->is_f32);
  assert_false(expr_select(pool, narrow, x, y)->is_f32);
  /* Signs move out, so that x and -x share one rounding. */
  assert_ptr_equal(expr_unary(pool, EXPR_NARROW, expr_neg(pool, x)), expr_neg(pool, narrow));
  assert_ptr_equal(expr_unary(pool, EXPR_WIDEN, expr_neg(pool, narrow)), expr_neg(pool, wide));
}

/* ---- values ---- */

enum { DAG = 120 };

typedef struct twin { /* a node and, worked out beside it without simplification, what it should be */
  const expr *e;
  long double value[HEADS * BLOCKS], error[HEADS * BLOCKS]; /* error: what rounding may have done */
} twin;

static twin random_leaf(expr_pool *pool, const double *positions, const double *elements, uint64_t *random) {
  twin t = {0};
  double values[HEADS * BLOCKS];
  int32_t offsets[HEADS * BLOCKS];
  int kind = random_below(random, 5), axis = random_below(random, 2);
  for (int i = 0; i < HEADS * BLOCKS; i++) {
    values[i] = random_below(random, 3) ? random_uniform(random, -2, 2) : random_below(random, 3) - 1;
    offsets[i] = random_below(random, 6);
    if (kind == 0) values[i] = values[0];
    if (kind == 1) values[i] = values[i % BLOCKS];
  }
  t.e = kind == 4   ? expr_operand(pool, 0, HEADS, offsets)
        : kind == 3 ? expr_position(pool, axis)
        : kind == 0 ? expr_const(pool, values[0])
                    : expr_table(pool, HEADS, values);
  for (int i = 0; i < HEADS * BLOCKS; i++)
    t.value[i] = kind == 4 ? elements[offsets[i]] : kind == 3 ? positions[axis] : values[i];
  return t;
}

/* A smooth operation of nodes there are, kept bounded so that errors stay comparable. */
static twin random_node(expr_pool *pool, const twin *a, const twin *b, uint64_t *random) {
  const long double eps = 0x1p-52L, quarter = 1.57079632679489661923132169163975144L;
  twin t = {0};
  int kind = random_below(random, 12);
  const expr *one = expr_const(pool, 1), *magnitude = expr_add(pool, one, expr_unary(pool, EXPR_ABS, b->e));
  switch (kind) {
  case 0: t.e = expr_add(pool, a->e, b->e); break;
  case 1: t.e = expr_sub(pool, a->e, b->e); break;
  case 2:
  case 3: t.e = expr_mul(pool, a->e, b->e); break;
  case 4: t.e = expr_div(pool, a->e, magnitude); break;
  case 5: t.e = expr_binary(pool, EXPR_MIN, a->e, b->e); break;
  case 6: t.e = expr_binary(pool, EXPR_MAX, a->e, b->e); break;
  case 7: t.e = expr_neg(pool, a->e); break;
  case 8: t.e = expr_unary(pool, EXPR_SQRT, magnitude); break;
  case 9: t.e = expr_unary(pool, EXPR_LOG, magnitude); break;
  case 10: t.e = expr_unary(pool, EXPR_SINQ, a->e); break;
  default: t.e = expr_unary(pool, EXPR_EXP, expr_unary(pool, EXPR_COSQ, a->e)); break;
  }
  for (int i = 0; i < HEADS * BLOCKS; i++) {
    long double x = a->value[i], y = b->value[i], ex = a->error[i], ey = b->error[i], *v = &t.value[i],
                *e = &t.error[i];
    switch (kind) {
    case 0:
      *v = x + y;
      *e = ex + ey + eps * (fabsl(x) + fabsl(y));
      break;
    case 1:
      *v = x - y;
      *e = ex + ey + eps * (fabsl(x) + fabsl(y));
      break;
    case 2:
    case 3:
      *v = x * y;
      *e = fabsl(x) * ey + fabsl(y) * ex + eps * fabsl(x * y);
      break;
    case 4:
      *v = x / (1 + fabsl(y));
      *e = ex + fabsl(x) * ey + eps * fabsl(x);
      break;
    case 5:
      *v = x < y ? x : y;
      *e = ex + ey;
      break;
    case 6:
      *v = x > y ? x : y;
      *e = ex + ey;
      break;
    case 7:
      *v = -x;
      *e = ex;
      break;
    case 8:
      *v = sqrtl(1 + fabsl(y));
      *e = ey + eps * *v;
      break;
    case 9:
      *v = logl(1 + fabsl(y));
      *e = ey + eps * (1 + *v);
      break;
    case 10:
      *v = sinl(quarter * x);
      *e = 2 * ex + eps * (1 + fabsl(x));
      break;
    default:
      *v = expl(cosl(quarter * x));
      *e = 6 * ex + 4 * eps * (1 + fabsl(x));
      break;
    }
  }
  return t;
}

TEST_BETWEEN(simplification_keeps_values, set_up, tear_down) {
  uint64_t random = 20;
  double positions[2], elements[6];
  for (int round = 0; round < 200; round++) {
    SCOPED arena *memory = arena_create();
    expr_pool *pool = expr_pool_create(memory, BLOCKS);
    for (int i = 0; i < 2; i++) positions[i] = random_uniform(&random, -3, 3);
    for (int i = 0; i < 6; i++) elements[i] = random_uniform(&random, -3, 3);
    const double *operands[] = {elements};
    twin node[DAG];
    for (int n = 0; n < DAG; n++) {
      if (n < 8) node[n] = random_leaf(pool, positions, elements, &random);
      else {
        do node[n] = random_node(pool, &node[random_below(&random, n)], &node[random_below(&random, n)], &random);
        while (fabsl(node[n].value[0]) > 1e3L || node[n].error[0] > 1e-9L);
      }
      unsigned depends = 0;
      for (int i = 0; i < expr_op_arity(node[n].e->op); i++) {
        depends |= node[n].e->arg[i]->depends;
        assert_true(node[n].e->arg[i]->id < node[n].e->id);
      }
      if (expr_op_arity(node[n].e->op)) assert_int_equal(node[n].e->depends, depends);
    }
    /* Evaluation walks trees, and a DAG this deep is a large one: some of the nodes are enough. */
    for (int n = 0; n < 40; n++)
      for (int i = 0; i < HEADS * BLOCKS; i++) {
        expr_environment env = {
            .head = i / BLOCKS, .block = i % BLOCKS, .blocks = BLOCKS, .positions = positions, .operands = operands};
        long double difference = fabsl(expr_eval_long(node[n].e, &env) - node[n].value[i]);
        if (!(difference <= 8 * node[n].error[i]))
          print_error("round %d node %d: %Lg, may be %Lg\n", round, n, difference, node[n].error[i]);
        assert_true(difference <= 8 * node[n].error[i]);
        assert_true(fabs(expr_eval(node[n].e, &env) - (double)node[n].value[i]) <=
                    (double)(8 * node[n].error[i] + 0x1p-52L * fabsl(node[n].value[i])));
      }
  }
}

/* A value that does not say it depends on something must not change with it. */
TEST_BETWEEN(dependences_are_honest, set_up, tear_down) {
  USE_FIXTURE;
  static const double all[] = {1, 2, 3, 4, 5, 6}, elements[] = {1, 2, 3, 4, 5, 6}, channels[] = {9};
  static const int32_t offsets[] = {0, 1, 2, 3, 4, 5};
  const double *operands[] = {elements}, here[] = {0.5, 0.25};
  const expr *leaves[] = {x,
                          f->table,
                          expr_table(pool, HEADS, all),
                          expr_operand(pool, 0, HEADS, offsets),
                          expr_channel(pool, 0),
                          number(pool, 3)};
  for (int i = 0; i < 6; i++)
    for (int j = 0; j < 6; j++) {
      const expr *e = expr_unary(pool, EXPR_EXP, expr_sub(pool, leaves[i], leaves[j]));
      assert_true((e->depends & ~(leaves[i]->depends | leaves[j]->depends)) == 0);
      for (int head = 0; head < HEADS; head++)
        for (int block = 0; block < BLOCKS; block++) {
          if (head && (e->depends & DEPENDS_HEAD)) continue;
          if (block && (e->depends & DEPENDS_BLOCK)) continue;
          expr_environment env = {.head = head,
                                  .block = block,
                                  .blocks = BLOCKS,
                                  .positions = here,
                                  .operands = operands,
                                  .channels = channels},
                           first = env;
          first.head = first.block = 0;
          assert_true(expr_eval(e, &env) == expr_eval(e, &first));
        }
    }
}

TEST_BETWEEN(text_has_every_node_once, set_up, tear_down) {
  USE_FIXTURE;
  const expr *square = expr_mul(pool, expr_add(pool, x, y), expr_add(pool, x, y));
  const expr *roots[] = {square, expr_unary(pool, EXPR_SQRT, square), number(pool, 2)};
  static const char *const names[] = {"a", "b", "c"};
  char *text = NULL, line[32];
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  expr_print_roots(out, roots, names, 3);
  fclose(out);
  snprintf(line, sizeof line, "  %%%d = * ", square->id);
  char *first = strstr(text, line);
  assert_non_null(first);
  assert_null(strstr(first + 1, line));
  assert_non_null(strstr(text, "  c = 2\n"));
  free(text);
}

TEST_BETWEEN(size_counts_what_is_shared_once, set_up, tear_down) {
  USE_FIXTURE;
  const expr *sum = expr_add(pool, x, y), *decay = expr_unary(pool, EXPR_EXP, sum);
  assert_int_equal(expr_size(f->memory, pool, x), 0);
  assert_int_equal(expr_size(f->memory, pool, sum), 1);
  assert_int_equal(expr_size(f->memory, pool, decay), 17);
  assert_int_equal(expr_size(f->memory, pool, expr_mul(pool, expr_add(pool, decay, sum), decay)), 19);
}

/* Whatever an index is, an element of the operand is read: nothing else is in memory that is anyone's. */
TEST(places_stay_inside) {
  SCOPED arena *a = arena_create();
  expr_pool *pool = expr_pool_create(a, 1);
  const expr *read = expr_element(pool, 0, 4, 1, (const int32_t[]){1}, expr_position(pool, 0));
  static const struct {
    double index;
    int place;
  } cases[] = {{0, 1},      {2.75, 3},    {-0.25, 0}, {3, 4},      {4, 4},   {-7, 0},       {0x1p31, 4},   {-0x1p31, 0},
               {0x1p63, 4}, {-0x1p63, 0}, {1e300, 4}, {-1e300, 0}, {NAN, 0}, {INFINITY, 4}, {-INFINITY, 0}};
  const double elements[] = {10, 11, 12, 13, 14}, *operands[] = {elements};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expr_environment env = {.blocks = 1, .positions = &cases[i].index, .operands = operands};
    assert_int_equal(expr_element_place(read, &env, cases[i].index), cases[i].place);
    assert_true(expr_eval_long(read, &env) == elements[cases[i].place]);
    dual_place place = dual_at(a, pool, &env);
    const dual_variable *variables;
    assert_int_equal(dual_variables(&place, &read, 1, &variables), 2); /* the element, and the position below it */
    dual y;
    dual_eval(&place, &(dual_variable){DUAL_OPERAND, 0, cases[i].place}, &read, 1, &y);
    assert_true(y.value == elements[cases[i].place] && y.tangent == 1);
  }
}

/* Two elements of one operand are variables of their own. */
TEST(elements_have_their_own_derivatives) {
  SCOPED arena *a = arena_create();
  expr_pool *pool = expr_pool_create(a, 1);
  const expr *x[2], *product;
  for (int i = 0; i < 2; i++) x[i] = expr_operand(pool, 0, 1, (const int32_t[]){i});
  product = expr_mul(pool, x[0], x[1]);
  const double elements[] = {3, 5}, *operands[] = {elements};
  expr_environment env = {.blocks = 1, .operands = operands};
  for (int i = 0; i < 2; i++) {
    dual_place place = dual_at(a, pool, &env);
    dual y;
    dual_eval(&place, &(dual_variable){DUAL_OPERAND, 0, i}, &product, 1, &y);
    assert_true(y.value == 15 && y.tangent == elements[1 - i]);
  }
}

/* Terms of a tangent that cancel keep their size, whatever operations they go through. */
TEST_BETWEEN(what_cancels_has_a_size, set_up, tear_down) {
  USE_FIXTURE;
  const double positions[SPEC_MAX_AXES] = {0.5, 3};
  const expr *more = expr_add(pool, x, number(pool, 1));
  const expr *zero = expr_sub(pool, expr_mul(pool, more, y), expr_mul(pool, x, y));
  const expr *mixed = expr_add(pool, expr_mul(pool, x, x), expr_div(pool, y, x));
  const struct {
    const expr *of;
    long double tangent, size;
  } cases[] = {{expr_mul(pool, x, y), 3, 3},
               {zero, 0, 6},
               {mixed, 1 - 12, 1 + 12},
               {expr_unary(pool, EXPR_EXP, mixed), -11 * expl(6.25L), 13 * expl(6.25L)},
               {expr_unary(pool, EXPR_FLOOR, mixed), 0, 0},
               {expr_binary(pool, EXPR_MAX, mixed, y), -11, 13}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expr_environment env = {.blocks = 1, .positions = positions};
    dual_place place = dual_at(f->memory, pool, &env);
    dual got;
    dual_eval(&place, &(dual_variable){DUAL_POSITION, 0, 0}, &cases[i].of, 1, &got);
    assert_true(fabsl(got.tangent - cases[i].tangent) <= 0x1p-60L * cases[i].size);
    assert_true(fabsl(got.size - cases[i].size) <= 0x1p-60L * cases[i].size);
  }
}

/* Numbers stored as integers are the nearest there are towards 0; what is no number is 0. */
TEST(integers_are_stored_inside) {
  static const struct {
    long double value;
    int32_t narrow;
    int64_t wide;
  } cases[] = {{2.75L, 2, 2},
               {-2.75L, -2, -2},
               {0x1p40L, INT32_MAX, 1ll << 40},
               {1e30L, INT32_MAX, INT64_MAX},
               {-1e30L, INT32_MIN, INT64_MIN},
               {INFINITY, INT32_MAX, INT64_MAX},
               {-INFINITY, INT32_MIN, INT64_MIN},
               {NAN, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int32_t narrow;
    int64_t wide;
    number_store(NUMBER_I32, &narrow, cases[i].value);
    number_store(NUMBER_I64, &wide, cases[i].value);
    assert_true(narrow == cases[i].narrow && wide == cases[i].wide);
  }
}

/* A loop, interpreted with and without what is known, and its copies have one value. */
TEST_BETWEEN(sums_are_their_copies, set_up, tear_down) {
  USE_FIXTURE;
  static const double index[] = {0, 1, 2, 3}, squares[] = {0, 1, 4, 9};
  static const double position[] = {0.7, -1.3};
  const expr *k = expr_terms(pool, 4, index),
             *inner = expr_sum(pool, 4, expr_unary(pool, EXPR_COSQ, expr_mul(pool, k, y)));
  const expr *slow = expr_mul(pool, expr_add(pool, x, inner), expr_mul(pool, k, f->table));
  const expr *sum = expr_sum(pool, 4, expr_add(pool, slow, expr_unary(pool, EXPR_SINQ, expr_add(pool, slow, k))));
  const expr *copies = expr_unrolled(pool, sum);
  assert_int_equal(sum->op, EXPR_SUM);
  assert_int_equal(sum->terms, 0);
  assert_int_equal(slow->terms, 4);
  expr_memo memo = {arena_array(f->memory, long double, expr_pool_count(pool)),
                    arena_alloc(f->memory, (size_t)expr_pool_count(pool))};
  for (int block = 0; block < BLOCKS; block++) {
    expr_environment env = {.block = block, .blocks = BLOCKS, .positions = position};
    double expected = 0, waves = 0;
    for (int i = 0; i < 4; i++) waves += expr_apply(EXPR_COSQ, i * position[1], 0, 0);
    for (int i = 0; i < 4; i++) {
      double term = (position[0] + waves) * i * (block + 1);
      expected += term + expr_apply(EXPR_SINQ, term + i, 0, 0);
    }
    assert_true(fabs(expr_eval(sum, &env) - expected) < 1e-12);
    assert_true(fabs(expr_eval(copies, &env) - expected) < 1e-12);
    memset(memo.known, 0, (size_t)expr_pool_count(pool));
    assert_true(fabs((double)expr_eval_known(sum, &env, &memo) - expected) < 1e-12);
  }
  assert_ptr_equal(expr_unrolled(pool, sum), copies);
  assert_ptr_equal(expr_mul(pool, k, k), expr_terms(pool, 4, squares));
  assert_const(expr_sum(pool, 4, k), 6);
  assert_const(expr_mul(pool, k, number(pool, 0)), 0);
  assert_ptr_equal(expr_sum(pool, 4, x), expr_mul(pool, x, number(pool, 4)));
  const int32_t first[] = {2, 2, 2};
  const expr *element = expr_sum(pool, 4, expr_element(pool, 0, 9, 1, first, expr_add(pool, k, k)));
  expr_environment env = {.blocks = BLOCKS,
                          .operands = (const double *const[]){(const double[]){9, 9, 1, 9, 2, 9, 3, 9, 4, 9}}};
  assert_true(expr_eval(element, &env) == 10 && expr_eval(expr_unrolled(pool, element), &env) == 10);
}

int main(void) { return run_listed(); }
