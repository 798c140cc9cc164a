/* maps_test: channels that are mapped before they turn, against the formula written again.
 *
 *     y = R(t theta) f(x),   x' = f'(x) R^T y'
 *
 * in double, with f and f' as the C library has them, far out, too; programs by the interpreter, and kernels; which
 * calls are refused before a byte is written; and descriptions that no loader makes.
 *
 * maps_test [TARGET]: of the kernels
 */
#include "described.h"
#include "interpret/trial.h"
#include "scoped.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const char *target; /* of the kernels; NULL: this processor */

enum { HEADS = 2, TOKENS = 5, HEAD_DIM = 20, COUNT = HEADS * TOKENS * HEAD_DIM, SKIPPED = 1 };

/* ---- the formula ---- */

typedef struct map {
  const char *name;
  double (*of)(double x), (*slope)(double x);
  double reach; /* of the channels */
} map;

static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }
static double logistic(double x) { return 1 / (1 + exp(-x)); }
static double tanh_slope(double x) { return 1 / (cosh(x) * cosh(x)); }
static double square(double x) { return x * x; }
static double twice(double x) { return 2 * x; }
static double elu(double x) { return x < 0 ? exp(x) : x + 1; }
static double elu_slope(double x) { return x < 0 ? exp(x) : 1; }

static const map maps[] = {{"softplus", softplus, logistic, 90},
                           {"tanh", tanh, tanh_slope, 3},
                           {"exp", exp, exp, 20},
                           {"square", square, twice, 1e6},
                           {"elu", elu, elu_slope, 40}};
enum { MAPS = sizeof maps / sizeof *maps };

/* One pair of one token: turned, or its gradient turned back. */
static void turn(int64_t token, int pair, double sense, double *x) {
  double angle = sense * (double)(token - SKIPPED) * pow(10000, -2.0 * pair / HEAD_DIM), c = cos(angle), s = sin(angle);
  double first = c * x[0] - s * x[1], second = s * x[0] + c * x[1];
  x[0] = first, x[1] = second;
}

static void encoded(const map *m, int64_t token, const double *x, double *y) {
  for (int c = 0; c < HEAD_DIM; c++) y[c] = token < SKIPPED ? x[c] : m->of(x[c]);
  for (int pair = 0; pair < HEAD_DIM / 2 && token >= SKIPPED; pair++) turn(token, pair, 1, y + 2 * pair);
}

static void gained(const map *m, int64_t token, const double *x, const double *g, double *back) {
  for (int c = 0; c < HEAD_DIM; c++) back[c] = g[c];
  for (int pair = 0; pair < HEAD_DIM / 2 && token >= SKIPPED; pair++) turn(token, pair, -1, back + 2 * pair);
  for (int c = 0; c < HEAD_DIM && token >= SKIPPED; c++) back[c] *= m->slope(x[c]);
}

/* ---- what is compared with it ---- */

typedef struct fixture {
  arena *memory;
  const spec *spec;
  double positions[TOKENS], x[COUNT], g[COUNT], y[COUNT], back[COUNT]; /* [head][token][channel] */
} fixture;

static fixture *open_fixture(const map *m) {
  arena *a = arena_create();
  fixture *f = arena_new(a, fixture);
  uint64_t random = 5;
  f->memory = a;
  f->spec = described(a, "more/positive_rope map=%s head_dim=20 skip_tokens=1", m->name);
  for (int n = 0; n < TOKENS; n++) f->positions[n] = n - SKIPPED;
  for (int i = 0; i < COUNT; i++) {
    f->x[i] = (float)random_uniform(&random, -m->reach, m->reach);
    f->g[i] = (float)random_uniform(&random, -1, 1);
  }
  for (int row = 0; row < HEADS * TOKENS; row++) {
    encoded(m, row % TOKENS, f->x + row * HEAD_DIM, f->y + row * HEAD_DIM);
    gained(m, row % TOKENS, f->x + row * HEAD_DIM, f->g + row * HEAD_DIM, f->back + row * HEAD_DIM);
  }
  return f;
}

/* By the row's size: a pair's numbers are made of both. */
static void is_near(const char *what, const double *exact, int i, double got, double bound) {
  const double *pair = exact + i / 2 * 2;
  double size = fmax(hypot(pair[0], pair[1]), 0x1p-100);
  if (!(fabs(got - exact[i]) <= bound * size)) fail_msg("%s: channel %d: %.9g, not %.9g", what, i, got, exact[i]);
}

static const program *program_of(fixture *f, const char *word) {
  const program *p = trial_program(f->memory, f->spec, word);
  assert_non_null(p);
  assert_null(program_fault(f->memory, p));
  return p;
}

TEST(programs) {
  for (int i = 0; i < MAPS; i++) {
    fixture *f = open_fixture(&maps[i]);
    long double out[COUNT];
    program_call call = {.tokens = TOKENS, .batches = 1, .heads = {HEADS}, .positions = f->positions};
    call.rows[0][0] = f->x;
    call.results[1][0] = out;
    program_interpret(program_of(f, "encode"), &call);
    for (int c = 0; c < COUNT; c++) is_near(maps[i].name, f->y, c, (double)out[c], 0x1p-40);
    /* y', x' and, behind them, x. */
    const program *back = program_of(f, "encode_transposed");
    assert_int_equal(back->n_streams, 3);
    call.rows[0][0] = f->g;
    call.rows[2][0] = f->x;
    call.results[1][0] = out;
    program_interpret(back, &call);
    for (int c = 0; c < COUNT; c++)
      if (fabs((double)out[c] - f->back[c]) > 0x1p-40 * fmax(1, fabs(maps[i].slope(f->x[c]))))
        fail_msg("%s: channel %d gains %.9g, not %.9g", maps[i].name, c, (double)out[c], f->back[c]);
    assert_null(trial_program(f->memory, f->spec, "encode_backward")); /* there is none of what was written */
    arena_destroy(f->memory);
  }
}

/* ---- kernels ---- */

typedef struct call {
  fixture *f;
  loaded_kernel *loaded;
  const pegen_kernel *kernel;
  DLTensor *x, *y, *g, *back;
  pegen_grad_args grad;
  pegen_args args;
} call;

static DLTensor *rows_of(fixture *f, const double *numbers) {
  return tensor_contiguous(f->memory, NUMBER_F32, 4, (int64_t[]){1, HEADS, TOKENS, HEAD_DIM}, numbers);
}

static void open_call(const map *m, call *c) {
  fixture *f = open_fixture(m);
  *c = (call){.f = f, .x = rows_of(f, f->x), .y = rows_of(f, f->x), .g = rows_of(f, f->g), .back = rows_of(f, f->g)};
  c->loaded = trial_load_gradients(f->memory, f->spec, target, PEGEN_DTYPE_F32, 1);
  c->kernel = run_kernel(c->loaded);
  c->grad =
      (pegen_grad_args){.struct_size = sizeof c->grad, .flags = PEGEN_GRAD_FROM_INPUT, .q_out = c->g, .q = c->back};
  c->args = (pegen_args){.struct_size = sizeof c->args,
                         .q = c->x,
                         .positions = tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){TOKENS, 1}, f->positions),
                         .grad = &c->grad};
}

static void close_call(call *c) {
  run_unload(c->loaded);
  arena_destroy(c->f->memory);
}

TEST(kernels) {
  for (int i = 0; i < MAPS; i++) {
    call c;
    open_call(&maps[i], &c);
    assert_int_equal(c.kernel->needs_input, 1);
    assert_int_equal(trial_call(c.kernel, c.args.positions, &(trial_operands){0}, c.x, c.y, NULL, NULL, 3), 0);
    for (int k = 0; k < COUNT; k++) is_near(maps[i].name, c.f->y, k, ((float *)c.y->data)[k], 0x1p-20);
    for (int part = 2; part >= 0; part--) assert_int_equal(c.kernel->encode_backward(&c.args, part, 3), 0);
    for (int k = 0; k < COUNT; k++) {
      double got = ((float *)c.back->data)[k], size = fmax(fabs(maps[i].slope(c.f->x[k])), 1);
      if (!(fabs(got - c.f->back[k]) <= 0x1p-20 * size)) /* slopes are made of terms as large as 1 */
        fail_msg("%s: channel %d gains %.9g, not %.9g", maps[i].name, k, got, c.f->back[k]);
    }
    close_call(&c);
  }
}

TEST(refusals) {
  call c;
  open_call(&maps[0], &c);
  DLTensor *before = tensor_copy(c.f->memory, c.back), overlapping = *c.back;
  const pegen_args sound = c.args;
  const pegen_grad_args sound_grad = c.grad;
#define REFUSED(error, change) \
  do { \
    c.args = sound; \
    c.grad = sound_grad; \
    change; \
    assert_int_equal(c.kernel->encode_backward(&c.args, 0, 1), PEGEN_ERROR_##error); \
    assert_true(tensor_identical(c.back, before)); \
  } while (0)
  REFUSED(NEEDS_INPUT, c.grad.flags = 0);
  REFUSED(MISSING_KEPT, c.args.q = NULL);
  REFUSED(OVERLAP, c.args.q = &overlapping);
  overlapping.shape = (int64_t[]){1, HEADS, TOKENS - 1, HEAD_DIM};
  REFUSED(SHAPE_MISMATCH, c.args.q = &overlapping);
  DLTensor bf16 = *c.x;
  bf16.dtype = (DLDataType){kDLBfloat, 16, 1};
  REFUSED(DTYPE_MISMATCH, c.args.q = &bf16);
  c.args = sound;
  c.grad = sound_grad;
  c.grad.q = c.g; /* in place of what comes in */
  assert_int_equal(c.kernel->encode_backward(&c.args, 0, 1), 0);
  close_call(&c);
}

/* ---- heads of q that share operands with one of k ---- */

enum { GROUP = 3, APART = 2, WIDTH = 22 };

static DLTensor *rows_of_heads(arena *a, int heads, uint64_t *random) {
  DLTensor *rows = tensor_rows(a, NUMBER_F32, ROWS_BNHD, APART, heads, TOKENS, WIDTH);
  if (random) tensor_randomize(rows, random);
  return rows;
}

/* Every GROUP-th head from `first` on. */
static DLTensor *heads_from(arena *a, const DLTensor *rows, int first) {
  DLTensor *some = tensor_copy(a, rows);
  some->data = (void *)(uintptr_t)tensor_at(rows, 0, first, 0, 0);
  some->shape = arena_array(a, int64_t, 4);
  some->strides = arena_array(a, int64_t, 4);
  for (int i = 0; i < 4; i++) some->shape[i] = rows->shape[i], some->strides[i] = rows->strides[i];
  some->shape[1] /= GROUP;
  some->strides[1] *= GROUP;
  return some;
}

/* Gradients of rows alone: what encode read goes along with its head. */
TEST(grouped_heads) {
  SCOPED arena *a = arena_create();
  uint64_t random = 7;
  const spec *s = described(a, "./mapped kind=vectors");
  SCOPED_KERNEL *loaded = trial_load_gradients(a, s, target, PEGEN_DTYPE_F32, 1);
  const pegen_kernel *kernel = run_kernel(loaded);
  trial_operands operands = trial_random_operands(a, s, NUMBER_F32, &random);
  double places[TOKENS * 2];
  for (int i = 0; i < TOKENS * 2; i++) places[i] = random_uniform(&random, -3, 3);
  DLTensor *x = rows_of_heads(a, GROUP * s->heads, &random), *g = rows_of_heads(a, GROUP * s->heads, &random),
           *k = rows_of_heads(a, s->heads, &random), *of_k = rows_of_heads(a, s->heads, &random),
           *back = rows_of_heads(a, GROUP * s->heads, NULL), *apart = rows_of_heads(a, GROUP * s->heads, NULL),
           *k_back = rows_of_heads(a, s->heads, NULL);
  pegen_grad_args grad = {
      .struct_size = sizeof grad, .flags = PEGEN_GRAD_FROM_INPUT, .q_out = g, .k_out = of_k, .q = back, .k = k_back};
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = s->n_operands,
                     .operands = operands.tensors,
                     .positions = tensor_contiguous(a, NUMBER_F64, 2, (int64_t[]){TOKENS, 2}, places),
                     .q = x,
                     .k = k,
                     .grad = &grad};
  assert_int_equal(kernel->encode_backward(&args, 0, 1), 0);
  grad.k_out = grad.k = NULL;
  args.k = NULL;
  for (int first = 0; first < GROUP; first++) {
    args.q = heads_from(a, x, first);
    grad.q_out = heads_from(a, g, first);
    grad.q = heads_from(a, apart, first);
    assert_int_equal(kernel->encode_backward(&args, 0, 1), 0);
  }
  assert_true(tensor_identical(back, apart));
}

/* What a message from another process might say (spec/wire). */
TEST(descriptions) {
  fixture *f = open_fixture(&maps[0]);
  expr_pool *pool = f->spec->pool;
  const expr *channel = expr_channel(pool, 0);
  const expr *const bad[] = {expr_channel(pool, 1), expr_const(pool, 2),
                             expr_add(pool, channel, expr_position(pool, 0)),
                             expr_mul(pool, channel, expr_const(pool, NAN))};
  assert_true(spec_validate(f->spec));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    spec s = *f->spec;
    s.pre = bad[i];
    assert_false(spec_validate(&s));
  }
  spec turned = *f->spec, undone = *f->spec, blocks = *f->spec;
  turned.angle[0] = expr_mul(pool, turned.angle[0], channel); /* channels are read by maps alone */
  assert_false(spec_validate(&turned));
  undone.inverse = true;
  assert_false(spec_validate(&undone));
  blocks.basis = &(spec_basis){{0}};
  assert_false(spec_validate(&blocks));
  arena_destroy(f->memory);
}

int main(int argc, char **argv) {
  target = argc > 1 ? argv[1] : NULL;
  return run_listed();
}
