/* asked_test: gradients of encodings in random numbers of tokens, of q's and k's own or of both, some of them asked for
 * and others not: they are the reference's, each what it is beside all others, to the bit, and nothing is written
 * outside of the workspace, however many the parts are.
 *
 *     backward_asked_test SEED COUNT [SPEC]
 */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/reference_gradient.h"
#include "verify/trial.h"

#include <math.h>
#include <string.h>

enum { MARGIN = 4096, FILL = 0xff, MOST_OPERANDS = 8 };

static uint64_t seed = 1;
static int count = 3;
static const char *only;

/* A call of its own: q, k, of 0 heads where it has none, and what goes out. */
typedef struct trial {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  uint64_t *random;
  trial_operands operands;
  int64_t batch, heads[2], tokens[2], sets[2]; /* sets: of positions */
  const double *values[2];
  DLTensor *positions[2]; /* the second NULL: the same */
  DLTensor *kept[2], *g[2];
  uint32_t flags;
} trial;

typedef struct gains {
  DLTensor *rows[2], *operands[MOST_OPERANDS], *positions[2];
  bool of_operands;
} gains;

static bool toss(const trial *t) { return random_below(t->random, 2) != 0; }

static int64_t elements_of(const DLTensor *x) {
  int64_t n = 1;
  for (int i = 0; i < x->ndim; i++) n *= x->shape[i];
  return n;
}

static DLTensor *numbers_like(const trial *t, const DLTensor *like) {
  return tensor_contiguous(t->memory, NUMBER_F64, like->ndim, like->shape,
                           arena_array(t->memory, double, elements_of(like) + 1));
}

static DLTensor *rows_of(const trial *t, int which) {
  DLTensor *rows = tensor_rows(t->memory, NUMBER_F32, (row_order)random_below(t->random, ROW_ORDER_COUNT), t->batch,
                               t->heads[which], t->tokens[which], t->spec->head_dim);
  tensor_randomize(rows, t->random);
  return rows;
}

static void open_positions(trial *t, int which) {
  int axes = t->spec->n_axes;
  int64_t shape[] = {t->batch, t->tokens[which], axes}, size = t->batch * t->tokens[which] * axes;
  bool own = toss(t);
  double *values = arena_array(t->memory, double, size + 1);
  for (int64_t i = 0; i < size; i++) values[i] = random_uniform(t->random, -4, 4);
  t->sets[which] = own ? t->batch : 1;
  t->values[which] = values;
  t->positions[which] = tensor_contiguous(t->memory, NUMBER_F64, own ? 3 : 2, own ? shape : shape + 1, values);
}

static trial open_trial(arena *a, const spec *s, const pegen_kernel *kernel, uint64_t *random) {
  trial t = {.memory = a, .spec = s, .kernel = kernel, .random = random};
  t.batch = 1 + random_below(random, toss(&t) ? 3 : 40); /* of more than 64 rows sums are begun anew */
  bool apart = toss(&t);
  for (int i = 0; i < 2; i++) {
    t.heads[i] = s->heads > 1 ? s->heads : 1 + random_below(random, 3);
    t.tokens[i] = i && !apart ? t.tokens[0] : 1 + random_below(random, toss(&t) || t.batch > 3 ? 12 : 90);
  }
  int given = random_below(random, 4); /* 0: q alone, 1: k alone */
  if (given == 0) t.heads[1] = 0;
  if (given == 1) t.heads[0] = 0;
  t.operands = trial_random_operands(a, s, NUMBER_F32, random);
  for (int i = 0; i <= apart; i++) open_positions(&t, i);
  for (int i = 0; i < 2; i++)
    if (t.heads[i]) t.kept[i] = rows_of(&t, i), t.g[i] = rows_of(&t, i);
  t.flags = PEGEN_GRAD_FROM_INPUT;
  return t;
}

static gains all_gains(const trial *t) {
  gains g = {.of_operands = t->spec->n_operands > 0};
  for (int i = 0; i < t->spec->n_operands; i++) g.operands[i] = numbers_like(t, t->operands.tensors[i]);
  for (int i = 0; i < 2; i++) {
    if (t->heads[i]) g.rows[i] = rows_of(t, i);
    bool has = i ? t->positions[1] && t->heads[1] : t->heads[0] || !t->positions[1];
    if (has && t->positions[i]) g.positions[i] = numbers_like(t, t->positions[i]);
  }
  return g;
}

static gains some_gains(const trial *t) {
  gains g = all_gains(t);
  for (int i = 0; i < 2; i++) {
    if (toss(t)) g.rows[i] = NULL;
    if (toss(t)) g.positions[i] = NULL;
  }
  for (int i = 0; i < t->spec->n_operands; i++)
    if (toss(t)) g.operands[i] = NULL;
  if (!random_below(t->random, 4)) g.of_operands = false;
  return g;
}

static bool is_any(const trial *t, const gains *g) {
  bool any = g->rows[0] || g->rows[1] || g->positions[0] || g->positions[1];
  for (int i = 0; i < t->spec->n_operands; i++) any |= g->of_operands && g->operands[i];
  return any;
}

static void call(const trial *t, const gains *g, int parts) {
  pegen_grad_args grad = {.struct_size = sizeof grad,
                          .flags = t->flags,
                          .q_out = t->g[0],
                          .k_out = t->g[1],
                          .q = g->rows[0],
                          .k = g->rows[1],
                          .operands = g->of_operands ? g->operands : NULL,
                          .positions = g->positions[0],
                          .k_positions = g->positions[1]};
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = t->kernel->n_operands,
                     .operands = t->operands.tensors,
                     .positions = t->positions[0],
                     .k_positions = t->positions[1],
                     .q = t->kept[0],
                     .k = t->kept[1],
                     .grad = &grad};
  args.workspace_bytes = t->kernel->encode_backward_workspace(&args);
  unsigned char *room = malloc(args.workspace_bytes + 2 * MARGIN);
  assert_non_null(room);
  memset(room, FILL, args.workspace_bytes + 2 * MARGIN);
  args.workspace = room + MARGIN;
  for (int part = parts - 1; part >= 0; part--) assert_int_equal(t->kernel->encode_backward(&args, part, parts), 0);
  for (int part = 0; part < parts; part++) assert_int_equal(t->kernel->encode_backward_finish(&args, part, parts), 0);
  for (size_t i = 0; i < MARGIN; i++) {
    assert_int_equal(room[i], FILL);
    assert_int_equal(room[MARGIN + args.workspace_bytes + i], FILL);
  }
  free(room);
}

static bool same_numbers(const DLTensor *x, const DLTensor *y) {
  return !x || !y || !memcmp(x->data, y->data, (size_t)elements_of(x) * sizeof(double));
}

static void assert_same(const trial *t, const gains *x, const gains *y) {
  for (int i = 0; i < 2; i++) {
    if (x->rows[i] && y->rows[i]) assert_true(tensor_identical(x->rows[i], y->rows[i]));
    assert_true(same_numbers(x->positions[i], y->positions[i]));
  }
  for (int i = 0; i < t->spec->n_operands && y->of_operands; i++)
    assert_true(same_numbers(x->operands[i], y->operands[i]));
}

/* ---- the reference ---- */

static double *doubles(const trial *t, const DLTensor *x) {
  double *values = arena_array(t->memory, double, elements_of(x) + 1), *at = values;
  for (int64_t b = 0; b < x->shape[0]; b++)
    for (int64_t h = 0; h < x->shape[1]; h++)
      for (int64_t n = 0; n < x->shape[2]; n++)
        for (int64_t c = 0; c < x->shape[3]; c++) *at++ = number_load(NUMBER_F32, tensor_at(x, b, h, n, c));
  return values;
}

static void ask(const trial *t, int own, bool of_q, bool of_k, gradient_sum **operands, gradient_sum *positions) {
  reference_backward call = {.batches = t->batch,
                             .tokens = t->tokens[own],
                             .position_sets = t->sets[own],
                             .positions = t->values[own],
                             .operands = t->operands.values,
                             .operand = operands,
                             .position = positions};
  reference_rows *rows[] = {&call.q, &call.k};
  bool has[] = {of_q && t->heads[0], of_k && t->heads[1]};
  for (int i = 0; i < 2; i++)
    if (has[i])
      *rows[i] = (reference_rows){.heads = t->heads[i],
                                  .x = doubles(t, t->kept[i]),
                                  .g = doubles(t, t->g[i]),
                                  .gradient = arena_array(t->memory, gradient_sum, elements_of(t->g[i]) + 1)};
  reference_encode_backward(t->spec, &call);
}

static void compare(const char *what, const DLTensor *got, const gradient_sum *expected) {
  for (int64_t i = 0; got && i < elements_of(got); i++) {
    double value = ((const double *)got->data)[i], error = fabs(value - (double)expected[i].value);
    if (!(error <= 0x1p-18 * (double)expected[i].size + 1e-30))
      fail_msg("%s, element %d: %.9g, not %.9g", what, (int)i, value, (double)expected[i].value);
  }
}

static void against_reference(const trial *t, const gains *g) {
  gradient_sum **operands = reference_operand_sums(t->memory, t->spec), *positions[2];
  bool apart = t->positions[1] != NULL;
  for (int i = 0; i <= apart; i++) {
    positions[i] = arena_array(t->memory, gradient_sum, t->batch * t->tokens[i] * t->spec->n_axes + 1);
    ask(t, i, i == 0, i == 1 || !apart, operands, positions[i]);
    compare("positions", g->positions[i], positions[i]);
  }
  for (int i = 0; i < t->spec->n_operands; i++) compare(t->spec->operand[i].name, g->operands[i], operands[i]);
}

/* ---- random calls ---- */

static void random_call(const spec *s, const pegen_kernel *kernel, uint64_t *random) {
  SCOPED arena *a = arena_create();
  trial t = open_trial(a, s, kernel, random);
  gains all = all_gains(&t);
  call(&t, &all, 1);
  if (!s->dense || s->dense->map != DENSE_SCHUR) against_reference(&t, &all); /* whose rows are of another basis */
  for (int i = 0; i < 4; i++) {
    gains some = some_gains(&t);
    if (!is_any(&t, &some)) continue;
    call(&t, &some, 1 + random_below(random, i < 2 ? 4 : 50));
    assert_same(&t, &all, &some);
  }
  gains twice = all_gains(&t);
  call(&t, &twice, 3);
  t.flags |= PEGEN_GRAD_ACCUMULATE;
  call(&t, &twice, 2);
  for (int own = 0; own < 2; own++)
    for (int64_t i = 0; all.positions[own] && i < elements_of(all.positions[own]); i++)
      assert_true(2 * ((double *)all.positions[own]->data)[i] == ((double *)twice.positions[own]->data)[i]);
  for (int i = 0; i < s->n_operands; i++)
    for (int64_t k = 0; k < elements_of(all.operands[i]); k++)
      assert_true(2 * ((double *)all.operands[i]->data)[k] == ((double *)twice.operands[i]->data)[k]);
}

TEST(asked_for_or_not) {
  static const char *const lines[] = {
      "liere heads=2 head_dim=16",
      "comrope_ld heads=2 head_dim=16",
      "comrope_ap heads=2 head_dim=18",
      "string_cayley head_dim=20",
      "string_cayley head_dim=12 inverse=true skip_tokens=2",
      "rope_mixed heads=2 head_dim=16 skip_tokens=3",
      "care skip_tokens=2",
      "geope3d",
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    if (only && strncmp(lines[i], only, strlen(only)) != 0) continue;
    SCOPED arena *a = arena_create();
    uint64_t random = seed + i;
    const spec *s = described(a, "%s", lines[i]);
    const char **targets;
    int n_targets = trial_targets(a, NULL, &targets), target = random_below(&random, n_targets);
    SCOPED_KERNEL *loaded = held(trial_load_gradients(a, s, targets[target], PEGEN_DTYPE_F32, 1));
    print_message("%s %s\n", lines[i], targets[target]);
    for (int k = 0; k < count; k++) random_call(s, run_kernel(loaded), &random);
  }
}

int main(int argc, char **argv) {
  if (argc > 2) seed = strtoull(argv[1], NULL, 10), count = atoi(argv[2]);
  only = argc > 3 ? argv[3] : NULL;
  return run_listed();
}
