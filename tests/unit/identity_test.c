/* What is proved to be 0 everywhere, and what is not though it is 0 at every point that one would draw. */
#include "algebra/identity.h"
#include "scoped.h"
#include "test.h"

enum { HEADS = 2, BLOCKS = 3 };

typedef struct fixture {
  arena *memory;
  spec spec;
  const expr *x, *y, *z, *w; /* operands' elements that differ from block to block, and a position */
} fixture;

static fixture begin(void) {
  fixture f = {.memory = arena_create()};
  f.spec = (spec){.heads = HEADS, .n_blocks = BLOCKS, .n_axes = 1, .pool = expr_pool_create(f.memory, BLOCKS)};
  const expr **leaf[] = {&f.x, &f.y, &f.z};
  for (int i = 0; i < 3; i++) {
    int32_t offsets[HEADS * BLOCKS];
    for (int j = 0; j < HEADS * BLOCKS; j++) offsets[j] = j * 3 + i;
    *leaf[i] = expr_operand(f.spec.pool, 0, HEADS, offsets);
  }
  f.w = expr_position(f.spec.pool, 0);
  return f;
}

#define ADD(x, y) expr_add(f.spec.pool, x, y)
#define SUB(x, y) expr_sub(f.spec.pool, x, y)
#define MUL(x, y) expr_mul(f.spec.pool, x, y)
#define DIV(x, y) expr_div(f.spec.pool, x, y)
#define NUMBER(v) expr_const(f.spec.pool, v)
#define FUNCTION(op, x) expr_unary(f.spec.pool, EXPR_##op, x)

TEST(identities_are_proved) {
  SCOPED fixture f = begin();
  const expr *sine = FUNCTION(SINQ, f.w), *root = FUNCTION(SQRT, ADD(MUL(f.x, f.x), MUL(f.y, f.y)));
  const expr *sum = ADD(f.x, f.y), *square = MUL(sum, sum);
  const expr *expanded = ADD(MUL(f.x, f.x), ADD(MUL(MUL(f.x, f.y), NUMBER(2)), MUL(f.y, f.y)));
  /* u ^ v of two vectors, whose Pfaffian is 0. */
  const expr *u[] = {f.x, f.y, DIV(f.z, root), sine}, *v[] = {f.w, NUMBER(0.3), f.z, DIV(f.y, root)};
  const expr *b[4][4];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) b[i][j] = SUB(MUL(u[i], v[j]), MUL(u[j], v[i]));
  const expr *first = MUL(b[0][1], b[2][3]), *second = MUL(b[0][2], b[1][3]), *third = MUL(b[0][3], b[1][2]);
  /* Factors differ from block to block: each of the two is 0 where the other is not. */
  const expr *chosen = expr_table(f.spec.pool, 1, (const double[]){0, 1, 0});
  const expr *others = expr_table(f.spec.pool, 1, (const double[]){2, 0, -3});
  const expr *zeros[] = {NUMBER(0),
                         SUB(square, expanded),
                         ADD(SUB(first, second), third),
                         SUB(MUL(DIV(f.x, f.y), f.y), f.x),
                         SUB(DIV(MUL(f.x, sine), sine), f.x),
                         MUL(MUL(chosen, f.x), MUL(others, sine)),
                         SUB(MUL(f.x, NUMBER(0.1 + 0.2)), ADD(MUL(f.x, NUMBER(0.1)), MUL(f.x, NUMBER(0.2)))),
                         SUB(FUNCTION(NARROW, MUL(f.x, f.y)), MUL(f.y, f.x))};
  for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) assert_true(identity_is_zero(&f.spec, zeros[i]));
}

TEST(what_is_0_nearby_is_not_proved) {
  SCOPED fixture f = begin();
  const expr *zero = NUMBER(0), *far = NUMBER(1e6), *sum = ADD(f.x, f.y), *table = f.z;
  const double one_block[] = {0, 0, 0, 0, 0, 1e-30};
  const expr *others[] = {expr_binary(f.spec.pool, EXPR_MAX, SUB(f.x, far), zero),
                          expr_binary(f.spec.pool, EXPR_MIN, ADD(f.x, far), zero),
                          FUNCTION(FLOOR, DIV(ADD(f.x, far), NUMBER(4e6))),
                          expr_select(f.spec.pool, expr_binary(f.spec.pool, EXPR_LESS, far, f.x), f.y, zero),
                          SUB(FUNCTION(ABS, ADD(f.x, far)), ADD(f.x, far)),
                          SUB(FUNCTION(ROUND32, f.x), f.x),
                          SUB(FUNCTION(TANH, ADD(MUL(f.x, f.x), far)), NUMBER(1)),
                          MUL(expr_table(f.spec.pool, HEADS, one_block), table),
                          SUB(MUL(sum, sum), ADD(MUL(f.x, f.x), MUL(f.y, f.y))),
                          SUB(f.x, f.y)};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(identity_is_zero(&f.spec, others[i]));
}

/* No proof, and an end: a product of as many sums as an expression may have. */
TEST(what_is_large_is_left_alone) {
  SCOPED fixture f = begin();
  const expr *product = NUMBER(1), *sum = ADD(f.x, ADD(f.y, ADD(f.z, f.w)));
  for (int i = 0; i < 40; i++) product = MUL(product, ADD(sum, FUNCTION(SINQ, MUL(f.w, NUMBER(i + 1)))));
  assert_false(identity_is_zero(&f.spec, product));
  assert_false(identity_is_zero(&f.spec, ADD(product, f.x)));
}

int main(void) { return run_listed(); }
