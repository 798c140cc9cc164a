/* operations_test [TARGETS]: every operation of expressions in every place where an expression may stand, on every
 * target that this machine runs, against the long-double reference.
 *
 * The operations are the rows of EXPR_OPS: one that some arithmetic has no code for fails here. In each place all are
 * summed into one kernel, in float64 and in float32, of arguments of both signs where the reference has a finite value;
 * where that fails, each is tried alone and named. A place is tried in a process of its own: a missing row ends it.
 */
#include "loader.h"
#include "verify/check.h"
#include "verify/trial_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const long double ATTENTION_BOUND = 0x1p-18L;

typedef enum where { IN_ANGLE, IN_COEFFICIENT, IN_SUM, IN_TERM, IN_BIAS } where;
typedef enum made_of { POSITIONS, OPERANDS, INPUTS } made_of;

typedef struct place {
  const char *name, *description, *grid; /* the last two: options of places.lua */
  where where;
  made_of of;
  bool attends;
} place;

static const place PLACES[] = {
    {"phase of rotors, of positions", "blades", "5,6", IN_ANGLE, POSITIONS, false},
    {"phase of rotors, of operands", "blades", "5,6", IN_ANGLE, OPERANDS, false},
    {"generator", "blades", "5,6", IN_COEFFICIENT, OPERANDS, false},
    {"phase of small dense blocks", "small", "5,6", IN_ANGLE, POSITIONS, false},
    {"phase of dense blocks", "dense", "5,6", IN_ANGLE, POSITIONS, false},
    {"phase of dense blocks, of operands", "dense", "5,6", IN_ANGLE, OPERANDS, false},
    {"phase of large dense blocks", "matrix", "5,6", IN_ANGLE, POSITIONS, false},
    {"what is added, of positions", "add", "5,6", IN_SUM, POSITIONS, false},
    {"what is added, of operands", "add", "5,6", IN_SUM, OPERANDS, false},
    {"weights of columns, of inputs", "columns", "5,6", IN_TERM, INPUTS, false},
    {"weights of columns, of operands", "columns", "5,6", IN_TERM, OPERANDS, false},
    {"weights of columns in attention, of inputs", "fused", "5,6", IN_TERM, INPUTS, true},
    {"weights of columns in attention, of operands", "fused", "5,6", IN_TERM, OPERANDS, true},
    {"bias on a grid", "bias", "5,6", IN_BIAS, POSITIONS, true},
    {"bias off the grid", "bias", "", IN_BIAS, POSITIONS, true},
    {"bias of operands", "bias", "", IN_BIAS, OPERANDS, true},
    {"rotation of a pair on a grid", "rotation", "5,6", IN_ANGLE, POSITIONS, true},
    {"rotation of a pair off the grid", "rotation", "", IN_ANGLE, POSITIONS, true},
    {"rotation of a pair, of operands", "rotation", "5,6", IN_ANGLE, OPERANDS, true},
};
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

/* ---- expressions ---- */

typedef struct builder {
  arena *memory;
  spec *spec;
  const place *place;
} builder;

static expr_pool *pool_of(const builder *b) { return b->spec->pool; }
static const expr *number(const builder *b, double value) { return expr_const(pool_of(b), value); }

/* Leaf `which` of two, whatever they are made of here. */
static const expr *leaf(const builder *b, int which) {
  if (b->place->of == POSITIONS) return expr_position(pool_of(b), which);
  int blocks = expr_pool_blocks(pool_of(b)), heads = b->spec->heads;
  int32_t *offsets = arena_array(b->memory, int32_t, heads *blocks);
  for (int i = 0; i < heads * blocks; i++)
    offsets[i] = b->place->of == OPERANDS ? 2 * (i / blocks) + which : which ? 0 : i % blocks;
  return b->place->of == OPERANDS ? expr_operand(pool_of(b), 0, heads, offsets) : expr_input(pool_of(b), 0, offsets);
}

/* An argument between `least` and least + 2.5 or so, at whole coordinates never near a whole number or the other one.
 */
static const expr *argument(const builder *b, const expr *x, double factor, double least) {
  expr_pool *pool = pool_of(b);
  const expr *size = expr_unary(pool, EXPR_ABS, x);
  return expr_add(pool, expr_mul(pool, size, number(b, factor)), number(b, least));
}

/* NULL: a leaf, which other operations are made of, or one that cannot stand here. */
static const expr *apply(const builder *b, expr_op op, const expr *x, const expr *y) {
  expr_pool *pool = pool_of(b);
  if (op == EXPR_ELEMENT) { /* what a pair reads from a table */
    if (b->place->where != IN_BIAS) return NULL;
    int last = (int)spec_operand_elements(&b->spec->operand[0]) - 1;
    const expr *index = expr_binary(pool, EXPR_MAX, number(b, 0), expr_binary(pool, EXPR_MIN, x, number(b, last)));
    return expr_element(pool, 0, last, 1, arena_array(b->memory, int32_t, expr_pool_blocks(pool)), index);
  }
  if (op == EXPR_INPUT_AT) return NULL; /* of scores, whose inputs other tests give: tests/attention */
  if (op == EXPR_SUM) { /* of biases and scores alone */
    const expr *terms = expr_terms(pool, 3, (double[]){0.25, 0.5, 1});
    return b->place->where == IN_BIAS ? expr_sum(pool, 3, expr_mul(pool, x, terms)) : NULL;
  }
  switch (expr_op_arity(op)) {
  case 0: return NULL;
  case 1: return expr_unary(pool, op, x);
  case 2: return expr_binary(pool, op, x, y);
  default: break;
  }
  if (op != EXPR_SELECT) {
    fprintf(stderr, "operations_test: no constructor of '%s'\n", expr_op_name(op));
    exit(1);
  }
  return expr_select(pool, expr_binary(pool, EXPR_LESS, x, y), x, y);
}

/* Whether the reference has a value of moderate size wherever the kernels will be called. */
static bool is_tame(const builder *b, const expr *x) {
  enum { STEPS = 11, ROOM = 64 };
  for (int i = 0; i < STEPS * STEPS; i++) {
    double positions[2] = {i % STEPS - STEPS / 2, i / STEPS - STEPS / 2}, values[ROOM];
    const double *rows[2] = {values, values};
    for (int j = 0; j < ROOM; j++) values[j] = 2.0 * positions[j % 2] / (STEPS / 2);
    expr_environment e = {
        .blocks = expr_pool_blocks(pool_of(b)), .positions = positions, .operands = rows, .inputs = rows};
    long double value = expr_eval_long(x, &e);
    if (!isfinite(value) || fabsl(value) > 100) return false;
  }
  return true;
}

/* The sum of an operation in both types, of positive and of negative arguments; NULL: it cannot stand here. */
static const expr *uses(const builder *b, expr_op op) {
  expr_pool *pool = pool_of(b);
  const expr *sum = NULL;
  for (int variant = 0; variant < 4; variant++) {
    const expr *x = leaf(b, 0), *y = leaf(b, 1);
    if (variant & 1) x = expr_unary(pool, EXPR_NARROW, x), y = expr_unary(pool, EXPR_NARROW, y);
    double below = variant & 2 ? -1.7 : 0;
    x = argument(b, x, 0.375, 0.9 + below);
    y = argument(b, y, 0.3125, 1.0 + below);
    const expr *use = apply(b, op, x, y);
    if (use && is_tame(b, use)) sum = sum ? expr_add(pool, sum, use) : use;
  }
  return sum;
}

/* ---- kernels ---- */

static void put(builder *b, const expr *sum) {
  spec *s = b->spec;
  expr_pool *pool = s->pool;
  const expr *small = expr_mul(pool, sum, number(b, 0x1p-6)), **at = NULL;
  switch (b->place->where) {
  case IN_ANGLE:
    at = &s->angle[0];
    if (b->place->of == OPERANDS) small = expr_mul(pool, small, expr_position(pool, 0));
    break;
  case IN_COEFFICIENT: at = &s->generator[0].coefficient[0]; break;
  case IN_SUM: at = (const expr **)&s->additive->value; break;
  case IN_TERM:
    at = (const expr **)&s->polynomial->value;
    small = expr_mul(pool, small, expr_position(pool, 0));
    break;
  case IN_BIAS: at = (const expr **)&s->pairwise->bias; break;
  }
  *at = expr_add(pool, *at, small);
}

static const DLTensor *whole_places(builder *b, int64_t tokens, uint64_t *random) {
  double *values = arena_array(b->memory, double, tokens * 2);
  for (int64_t i = 0; i < tokens * 2; i++) values[i] = random_below(random, 6);
  return tensor_contiguous(b->memory, NUMBER_F32, 2, (int64_t[]){tokens, 2}, values);
}

static bool attention_agrees(builder *b, const char *target) {
  uint64_t random = 1;
  spec *s = b->spec;
  loaded_kernel *loaded = trial_load(b->memory, s, target, PEGEN_DTYPE_F32, 1);
  if (!loaded) return false;
  int64_t grid = spec_grid_tokens(s);
  attention_sizes sizes = {1, s->heads, s->heads, grid ? grid : 21, grid ? grid : 37};
  attention_trial t = {.spec = s};
  attention_trial_fill(b->memory, &t, &sizes, NUMBER_F32, ROWS_BHND, &random);
  if (!grid) t.positions = whole_places(b, sizes.tokens, &random);
  if (!grid) t.k_positions = whole_places(b, sizes.keys, &random);
  t.operands = trial_random_operands(b->memory, s, NUMBER_F32, &random);
  DLTensor *out = attention_trial_out(b->memory, &t, ROWS_BHND);
  trial_error worst = {0};
  int error = attention_trial_call(run_kernel(loaded), &t, out, 1);
  if (!error) attention_trial_compare(b->memory, run_kernel(loaded), &t, out, 1, &worst);
  run_unload(loaded);
  if (!error && !worst.spoilt && worst.error <= ATTENTION_BOUND) return true;
  printf("target %s, call %d: %s\n", target, error, trial_error_text(b->memory, &worst));
  return false;
}

/* All operations (only: that one alone), in one kernel for each target. */
static bool agrees(const place *p, const char *targets, int only) {
  builder b = {.memory = arena_create(), .place = p};
  loader_define defines[] = {{"place", p->description}, {"grid", p->grid}};
  b.spec = loader_load(b.memory, LOCAL_DIR "/places.lua", DSL_DIR, 1 + (*p->grid != 0), defines);
  if (!b.spec) return false;
  const expr *sum = NULL;
  for (int op = 0; op < EXPR_OP_COUNT; op++) {
    const expr *use = only < 0 || op == only ? uses(&b, (expr_op)op) : NULL;
    if (use) sum = sum ? expr_add(pool_of(&b), sum, use) : use;
  }
  if (!sum) return only >= 0;
  put(&b, sum);
  check_options check = {.targets = targets, .dtypes = PEGEN_DTYPE_F32, .optimize = 1, .gradients = true};
  if (!p->attends) return check_spec(b.memory, b.spec, &check) == 0;
  const char **names;
  int count = trial_targets(b.memory, targets, &names);
  bool all = count > 0;
  for (int i = 0; i < count; i++) all = attention_agrees(&b, names[i]) && all;
  return all;
}

/* Compares a place in a process of its own, which a bug may end. */
static bool survives(const place *p, const char *targets, int only) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    if (only < 0 && !freopen("/dev/null", "w", stdout)) _exit(2);
    bool passed = agrees(p, targets, only);
    fflush(stdout);
    _exit(passed ? 0 : 1);
  }
  int status;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv) {
  const char *targets = argc > 1 ? argv[1] : NULL;
  int failed = 0;
  for (int i = 0; i < PLACE_COUNT; i++) {
    const place *p = &PLACES[i];
    if (survives(p, targets, -1)) continue;
    failed++;
    printf("FAILED: %s\n", p->name);
    for (int op = 0; op < EXPR_OP_COUNT; op++)
      if (!survives(p, targets, op)) printf("FAILED: '%s' in %s\n", expr_op_name((expr_op)op), p->name);
  }
  printf("%d of %d places failed, %d operations\n", failed, PLACE_COUNT, EXPR_OP_COUNT);
  return failed != 0;
}
