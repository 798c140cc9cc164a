/* size: operations of a description's expressions, and that each of its fields has the limit. */
#include "base/diag.h"
#include "scoped.h"
#include "spec/size.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static char said[1024];

static void hear(diag_kind kind, const char *file, int line, const char *text) {
  (void)kind, (void)file, (void)line;
  snprintf(said, sizeof said, "%s", text);
}

/* That many operations on x: |x + 1| and so on, which nothing gathers. */
static const expr *operations(expr_pool *pool, const expr *x, int count) {
  for (int i = 0; i < count; i++)
    x = i % 2 ? expr_unary(pool, EXPR_ABS, x) : expr_add(pool, x, expr_const(pool, i + 1));
  return x;
}

TEST(operations_are_counted) {
  SCOPED arena *a = arena_create();
  expr_pool *pool = expr_pool_create(a, 1);
  const expr *x = expr_position(pool, 0), *y = expr_position(pool, 1);
  assert_int_equal(expr_size(a, pool, x), 0);
  assert_int_equal(expr_size(a, pool, expr_add(pool, x, y)), 1);
  assert_int_equal(expr_size(a, pool, operations(pool, x, 7)), 7);
  assert_int_equal(expr_size(a, pool, expr_unary(pool, EXPR_EXP, x)), 16);
  assert_int_equal(expr_size(a, pool, expr_element(pool, 0, 0, 1, (int32_t[]){0}, expr_unary(pool, EXPR_FLOOR, x))),
                   17);
  const expr *shared = operations(pool, x, 5), *roots[] = {expr_mul(pool, shared, y), expr_sub(pool, shared, y)};
  assert_int_equal(expr_size_of_all(a, pool, roots, 2), 7);
  assert_int_equal(expr_size(a, pool, expr_mul(pool, roots[0], roots[1])), 8);
}

enum { PHASE, GENERATOR, ENTRY_OF_Q, ENTRY_OF_K, MAP, ADDED, TERM, SCORE, BIAS, OF_A_PART, FIELDS };

/* A description whose one large expression is x. */
static bool fits(arena *a, expr_pool *pool, int field, const expr *x) {
  const expr *one = expr_const(pool, 1), *entries[2][1] = {{one}, {one}};
  spec_additive added = {x};
  spec_polynomial polynomial = {.value = x};
  spec_pairwise pairwise = {0};
  spec s = {.file = "size", .n_axes = 2, .axis = {"x", "y"}, .heads = 1, .pool = pool}, whole = s;
  for (int axis = 0; axis < 2; axis++) {
    s.generator[axis] = (spec_bivector){.count = 1, .blade = {3}, .coefficient = {one}};
    s.angle[axis] = one;
  }
  s.n_components = field <= MAP || field == OF_A_PART;
  spec_part part = {.of = &s};
  whole.n_parts = 1;
  whole.part = &part;
  switch (field) {
  case PHASE:
  case OF_A_PART: s.angle[1] = x; break;
  case GENERATOR: s.generator[1].coefficient[0] = x; break;
  case ENTRY_OF_Q:
  case ENTRY_OF_K:
    entries[field == ENTRY_OF_K][0] = x;
    for (int side = 0; side < 2; side++) s.entries[side] = entries[side];
    break;
  case MAP: s.pre = x; break;
  case ADDED: s.additive = &added; break;
  case TERM: s.polynomial = &polynomial; break;
  case SCORE: pairwise.score = x; break;
  default: pairwise.bias = x;
  }
  if (field == SCORE || field == BIAS) s.pairwise = &pairwise;
  return spec_check_size(a, field == OF_A_PART ? &whole : &s);
}

TEST(every_field_has_the_limit) {
  static const char *const words[FIELDS] = {"the phase of axis 'y' takes 4097 operations",
                                            "the generator of axis 'y'",
                                            "an entry of the matrix",
                                            "an entry of the matrix",
                                            "the map of a channel",
                                            "what is added to a channel",
                                            "a term of the bias",
                                            "the score of a pair",
                                            "the bias of a pair",
                                            "the phase of axis 'y'"};
  diag_send_to(hear);
  for (int field = 0; field < FIELDS; field++) {
    SCOPED arena *a = arena_create();
    expr_pool *pool = expr_pool_create(a, 1);
    const expr *x = expr_position(pool, 0);
    *said = 0;
    assert_true(fits(a, pool, field, operations(pool, x, 4096)));
    assert_string_equal(said, "");
    assert_false(fits(a, pool, field, operations(pool, x, 4097)));
    assert_non_null(strstr(said, words[field]));
  }
  diag_send_to(NULL);
}

int main(void) { return run_listed(); }
