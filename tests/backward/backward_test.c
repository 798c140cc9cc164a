/* Gradients of rows: the adjoint identity with random directions for every description that has them, with defaults for
 * every target that runs here and every number type, and for its variants; rows in other places and parts the same to
 * the bit; NaN in its block; what is refused; positions of k alone, gradients that repeat, and no rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "forms/form.h"
#include "variants.h"
#include "verify/reference_gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, TOKENS = 7, ANY_HEADS = 3, ANY_K_HEADS = 2, LEAST_SPECS = 10, CALL_TESTS = 6 };

typedef struct fixture {
  arena *memory;
  const spec *spec;
  const pegen_kernel *kernel;
  uint64_t random;
  number_type type;
  const double *position_values;
  DLTensor *positions;
  trial_operands operands;
  void *table; /* that calls use; NULL: none */
  size_t table_bytes;
  DLTensor *x[2], *y[2], *g[2], *back[2]; /* q, k: what goes in, what comes out, a gradient and where it goes */
} fixture;

static DLTensor *rows_of(fixture *f, int tensor, row_order order) {
  int64_t heads = f->spec->heads > 1 ? f->spec->heads : tensor ? ANY_K_HEADS : ANY_HEADS;
  DLTensor *t = tensor_rows(f->memory, f->type, order, BATCH, heads, TOKENS, f->spec->head_dim);
  tensor_randomize(t, &f->random);
  return t;
}

static fixture open_fixture(const spec *s, const pegen_kernel *kernel, number_type type) {
  fixture f = {.memory = arena_create(), .spec = s, .kernel = kernel, .random = 42, .type = type};
  double *values = arena_array(f.memory, double, BATCH * TOKENS * s->n_axes), reach = s->dense || s->algebra.q ? 4 : 60;
  for (int i = 0; i < BATCH * TOKENS * s->n_axes; i++) values[i] = random_uniform(&f.random, -reach, reach);
  f.position_values = values;
  f.positions = tensor_contiguous(f.memory, NUMBER_F64, 3, (int64_t[]){BATCH, TOKENS, s->n_axes}, values);
  f.operands = trial_random_operands(f.memory, s, NUMBER_F32, &f.random);
  for (int i = 0; i < 2; i++) {
    f.x[i] = rows_of(&f, i, ROWS_BHND);
    f.y[i] = rows_of(&f, i, ROWS_BHND);
    f.g[i] = rows_of(&f, i, ROWS_BHND);
    f.back[i] = rows_of(&f, i, ROWS_BHND);
  }
  return f;
}

static int backward(const fixture *f, const DLTensor *const *g, DLTensor *const *back, int parts) {
  pegen_grad_args grad = {.struct_size = sizeof grad, .q_out = g[0], .k_out = g[1], .q = back[0], .k = back[1]};
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = f->kernel->n_operands,
                     .operands = f->operands.tensors,
                     .positions = f->positions,
                     .table = f->table,
                     .table_bytes = f->table_bytes,
                     .grad = &grad};
  int error = 0;
  for (int part = parts - 1; part >= 0; part--) {
    int failed = f->kernel->encode_backward(&args, part, parts);
    if (failed) error = failed;
  }
  return error;
}

static void forward(const fixture *f, DLTensor *const *x, DLTensor *const *y) {
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = f->kernel->n_operands,
                     .operands = f->operands.tensors,
                     .positions = f->positions,
                     .q = x[0],
                     .k = x[1],
                     .q_out = y[0],
                     .k_out = y[1],
                     .table = f->table,
                     .table_bytes = f->table_bytes};
  assert_int_equal(f->kernel->encode(&args, 0, 1), 0);
}

static double at_of(const DLTensor *t, int64_t b, int64_t h, int64_t n, int64_t c) {
  return number_load(number_type_of(t->dtype), tensor_at(t, b, h, n, c));
}

#define EACH(t, b, h, n, c) \
  for (int64_t b = 0; b < (t)->shape[0]; b++) \
    for (int64_t h = 0; h < (t)->shape[1]; h++) \
      for (int64_t n = 0; n < (t)->shape[2]; n++) \
        for (int64_t c = 0; c < (t)->shape[3]; c++)

/* <x, y - z>, z NULL: 0; *size: the sum of the terms' absolute values. */
static double product(const DLTensor *x, const DLTensor *y, const DLTensor *z, double *size) {
  double sum = 0;
  EACH(x, b, h, n, c) {
    double term = at_of(x, b, h, n, c) * (at_of(y, b, h, n, c) - (z ? at_of(z, b, h, n, c) : 0));
    sum += term;
    *size += fabs(term);
  }
  return sum;
}

/* <g, J x> = <J^T g, x>; J x is what remains of encoding x when what comes of 0 is taken away. */
static void is_adjoint(fixture *f, const char *name) {
  DLTensor *zero[2], *origin[2];
  for (int i = 0; i < 2; i++) {
    zero[i] = rows_of(f, i, ROWS_BHND);
    origin[i] = rows_of(f, i, ROWS_BHND);
    EACH(zero[i], b, h, n, c) number_store(f->type, tensor_at(zero[i], b, h, n, c), 0);
  }
  forward(f, f->x, f->y);
  forward(f, zero, origin);
  assert_int_equal(backward(f, (const DLTensor *const *)f->g, f->back, 1), 0);
  double precision = f->type == NUMBER_F32 ? 0x1p-20 : f->type == NUMBER_F16 ? 0x1p-10 : 0x1p-7;
  for (int i = 0; i < 2; i++) {
    double size = 0, left = product(f->g[i], f->y[i], origin[i], &size);
    double right = product(f->x[i], f->back[i], NULL, &size);
    if (!(fabs(left - right) <= precision * size) || size == 0)
      fail_msg("%s, %s of %s: %.9g and %.9g", name, i ? "k" : "q", number_name(f->type), left, right);
  }
}

/* Elsewhere in memory, in place and in parts: the same bits. */
static void is_same_everywhere(fixture *f) {
  for (int order = 0; order < ROW_ORDER_COUNT; order++) {
    DLTensor *g[2], *back[2];
    for (int i = 0; i < 2; i++) {
      g[i] = rows_of(f, i, (row_order)order);
      EACH(g[i], b, h, n, c)
      memcpy(tensor_at(g[i], b, h, n, c), tensor_at(f->g[i], b, h, n, c), (size_t)number_bytes(f->type));
      back[i] = order == ROWS_GAPS ? g[i] : rows_of(f, i, (row_order)order);
    }
    assert_int_equal(backward(f, (const DLTensor *const *)g, back, 3), 0);
    for (int i = 0; i < 2; i++) assert_true(tensor_identical(back[i], f->back[i]));
    DLTensor *alone[2] = {NULL, rows_of(f, 1, (row_order)order)};
    const DLTensor *const k[] = {NULL, f->g[1]};
    assert_int_equal(backward(f, k, alone, 2), 0);
    assert_true(tensor_identical(alone[1], f->back[1]));
  }
}

/* The same by a table: what encode does by it, by its transposes. */
static void is_adjoint_by_table(fixture *f, const char *name) {
  if (!f->kernel->prepare) return;
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = f->kernel->n_operands,
                     .operands = f->operands.tensors,
                     .positions = f->positions};
  DLTensor *without[2] = {tensor_copy(f->memory, f->back[0]), tensor_copy(f->memory, f->back[1])};
  args.table_bytes = f->table_bytes = f->kernel->table_bytes(&args);
  args.table = f->table = aligned_alloc(64, (f->table_bytes + 63) / 64 * 64);
  assert_int_equal(f->kernel->prepare(&args, 0, 1), 0);
  is_adjoint(f, name);
  is_same_everywhere(f);
  double precision = f->type == NUMBER_F32 ? 0x1p-14 : 0x1p-6; /* of norms that the exponentials have here */
  for (int i = 0; i < 2; i++) EACH(without[i], b, h, n, c)
  assert_true(fabs(at_of(without[i], b, h, n, c) - at_of(f->back[i], b, h, n, c)) <= precision * f->spec->head_dim);
  free(f->table);
  f->table = NULL;
  for (int i = 0; i < 2; i++) f->back[i] = without[i];
}

static int block_of(const spec *s, int channel) {
  if (s->basis) return 0; /* which all channels go through */
  for (int i = 0; i < s->n_components * s->n_blocks && !s->additive; i++)
    if (s->channel[i] == channel) return i % s->n_blocks;
  return -1 - channel;
}

/* A NaN and an infinity reach their block's channels and no others. */
static void spoils_its_block(fixture *f) {
  const spec *s = f->spec;
  int channel = s->head_dim / 2;
  DLTensor *g[2] = {tensor_copy(f->memory, f->g[0]), tensor_copy(f->memory, f->g[1])}, *back[2];
  number_store(f->type, tensor_at(g[0], 0, 1, TOKENS - 1, channel), NAN);
  number_store(f->type, tensor_at(g[1], 1, 0, TOKENS - 1, channel), INFINITY);
  for (int i = 0; i < 2; i++) back[i] = rows_of(f, i, ROWS_BHND);
  assert_int_equal(backward(f, (const DLTensor *const *)g, back, 1), 0);
  for (int i = 0; i < 2; i++) EACH(back[i], b, h, n, c) {
      bool here = b == i && h == 1 - i && n == TOKENS - 1 && block_of(s, (int)c) == block_of(s, channel);
      if (!here)
        assert_memory_equal(tensor_at(back[i], b, h, n, c), tensor_at(f->back[i], b, h, n, c),
                            (size_t)number_bytes(f->type));
      if (b == i && h == 1 - i && n == TOKENS - 1 && c == channel) assert_false(isfinite(at_of(back[i], b, h, n, c)));
    }
}

/* ---- operands and positions ---- */

/* Gradients of everything, in float64, and how they are asked for. */
typedef struct gradients {
  DLTensor *operands[8], *positions, *back[2];
  uint32_t flags;
  int parts;
} gradients;

static DLTensor *full_of(arena *a, number_type type, const DLTensor *like, double value) {
  int64_t count = 1;
  for (int i = 0; i < like->ndim; i++) count *= like->shape[i];
  double *values = arena_array(a, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = value;
  return tensor_contiguous(a, type, like->ndim, like->shape, values);
}

static gradients new_gradients(fixture *f, number_type type, uint32_t flags, int parts, double before) {
  gradients g = {.flags = flags, .parts = parts};
  for (int i = 0; i < f->spec->n_operands; i++)
    g.operands[i] = full_of(f->memory, type, f->operands.tensors[i], before);
  g.positions = full_of(f->memory, type, f->positions, before);
  for (int i = 0; i < 2; i++) g.back[i] = rows_of(f, i, ROWS_BHND);
  return g;
}

static void all_gradients(const fixture *f, bool of_positions, DLTensor *const *kept, gradients *g) {
  pegen_grad_args grad = {.struct_size = sizeof grad,
                          .flags = g->flags,
                          .q_out = f->g[0],
                          .k_out = f->g[1],
                          .q = g->back[0],
                          .k = g->back[1],
                          .operands = f->spec->n_operands ? g->operands : NULL,
                          .positions = of_positions ? g->positions : NULL};
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = f->kernel->n_operands,
                     .operands = f->operands.tensors,
                     .positions = f->positions,
                     .q = kept[0],
                     .k = kept[1],
                     .grad = &grad};
  size_t bytes = f->kernel->encode_backward_workspace(&args);
  args.workspace = arena_alloc(f->memory, bytes + 8);
  args.workspace_bytes = bytes;
  memset(args.workspace, 0xff, bytes); /* NaN */
  for (int part = g->parts - 1; part >= 0; part--)
    assert_int_equal(f->kernel->encode_backward(&args, part, g->parts), 0);
  int finishers = 4 * g->parts - 3; /* 1, 5, 9, 17: more than have work */
  for (int part = finishers - 1; part >= 0; part--)
    assert_int_equal(f->kernel->encode_backward_finish(&args, part, finishers), 0);
}

/* The same by way of a table, of two calls: what rows of q give, and then those of k; the first one twice, for what it
 * does not find there it does not add to. */
static void gradients_by_table(const fixture *f, bool of_positions, DLTensor *const *kept, gradients *g) {
  arena *a = f->memory;
  const pegen_kernel *kernel = f->kernel;
  pegen_grad_args grad = {.struct_size = sizeof grad};
  pegen_args prepare = {.struct_size = sizeof prepare,
                        .n_operands = kernel->n_operands,
                        .operands = f->operands.tensors,
                        .positions = f->positions,
                        .grad = &grad};
  prepare.table_bytes = kernel->table_bytes(&prepare);
  prepare.table = arena_alloc(a, prepare.table_bytes + 64);
  prepare.table = (char *)prepare.table + (64 - (uintptr_t)prepare.table % 64) % 64;
  assert_int_equal(kernel->prepare(&prepare, 0, 1), 0);
  grad.table_bytes = kernel->gradient_table_bytes(&prepare);
  assert_true(grad.table_bytes > 128);
  char *torques = arena_alloc(a, grad.table_bytes + 128);
  grad.table = torques += (64 - (uintptr_t)torques % 64) % 64;
  memset(torques, 0xff, grad.table_bytes + 64); /* NaN */
  for (int i = 0; i < 3; i++) {
    pegen_args args = {
        .struct_size = sizeof args, .table = prepare.table, .table_bytes = prepare.table_bytes, .grad = &grad};
    bool is_k = i == 2;
    grad.flags = (is_k ? PEGEN_GRAD_ACCUMULATE : 0) | (g->flags & PEGEN_GRAD_FROM_INPUT);
    grad.q_out = is_k ? NULL : f->g[0];
    grad.k_out = is_k ? f->g[1] : NULL;
    grad.q = is_k ? NULL : g->back[0];
    grad.k = is_k ? g->back[1] : NULL;
    args.q = is_k ? NULL : kept[0];
    args.k = is_k ? kept[1] : NULL;
    for (int part = g->parts - 1; part >= 0; part--)
      assert_int_equal(kernel->encode_backward(&args, part, g->parts), 0);
  }
  grad.q_out = grad.k_out = grad.q = grad.k = NULL;
  grad.flags = g->flags;
  grad.operands = f->spec->n_operands ? g->operands : NULL;
  grad.positions = of_positions ? g->positions : NULL;
  prepare.table = NULL; /* which is not looked at */
  size_t bytes = kernel->prepare_backward_workspace(&prepare);
  prepare.workspace = arena_alloc(a, bytes + 8);
  prepare.workspace_bytes = bytes;
  memset(prepare.workspace, 0xff, bytes);
  for (int part = g->parts - 1; part >= 0; part--)
    assert_int_equal(kernel->prepare_backward(&prepare, part, g->parts), 0);
  int finishers = 4 * g->parts - 3;
  for (int part = finishers - 1; part >= 0; part--)
    assert_int_equal(kernel->prepare_backward_finish(&prepare, part, finishers), 0);
  for (int i = 0; i < 64; i++) assert_int_equal(torques[grad.table_bytes + (size_t)i] & 0xff, 0xff);
}

/* Rows as float64 [B][H][N][D]. */
static double *numbers_of(fixture *f, const DLTensor *t) {
  double *values = arena_array(f->memory, double, t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] + 1),
         *at = values;
  EACH(t, b, h, n, c) *at++ = at_of(t, b, h, n, c);
  return values;
}

static double element(const DLTensor *t, int64_t i) {
  number_type type = number_type_of(t->dtype);
  return number_load(type, (const char *)t->data + i * number_bytes(type));
}

static void compare(const char *name, const char *what, const DLTensor *got, const gradient_sum *expected,
                    int64_t count, double before, double bound) {
  for (int64_t i = 0; i < count; i++) {
    double error = fabs(element(got, i) - before - (double)expected[i].value);
    if (!(error <= bound * (double)expected[i].size + 1e-30))
      fail_msg("%s: gradient of %s, element %d: %.9g, not %.9g (of %.9g): 2^%.1f", name, what, (int)i,
               element(got, i) - before, (double)expected[i].value, (double)expected[i].size,
               log2(error / (double)expected[i].size));
  }
}

static bool is_rebased(const spec *s) { return s->dense && s->dense->map == DENSE_SCHUR; }

/* Gradients of q or k of what is written, where the reference writes it: f->back holds those of rows. */
static double *gradients_of(fixture *f, int which) {
  const spec *s = f->spec;
  double *g = numbers_of(f, is_rebased(s) ? f->back[which] : f->g[which]), *at = g;
  int64_t heads = f->g[which]->shape[1], sets = f->positions->ndim == 3;
  for (int64_t b = 0; b < BATCH && is_rebased(s); b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t n = 0; n < TOKENS; n++, at += s->head_dim)
        if (n >= s->skip_tokens)
          reference_gradients_in_channels(s, f->position_values + (b * sets * TOKENS + n) * s->n_axes,
                                          f->operands.values, (int)(s->heads > 1 ? h : 0), 1, &at);
  return g;
}

static int compared_operands, compared_positions, compared_tables;

typedef void gradient_way(const fixture *f, bool of_positions, DLTensor *const *kept, gradients *g);

/* Gradients of all parts in one, and of several: the same. */
static void is_same_in_parts(fixture *f, bool of_positions, DLTensor *const *kept, const gradients *g, double before,
                             gradient_way *way) {
  const spec *s = f->spec;
  int64_t sets = f->positions->ndim == 3 ? BATCH : 1;
  for (int parts = 2; parts < 7; parts += 3) {
    gradients same = new_gradients(f, NUMBER_F64, g->flags, parts, before);
    way(f, of_positions, kept, &same);
    for (int i = 0; i < s->n_operands; i++)
      assert_memory_equal(same.operands[i]->data, g->operands[i]->data,
                          (size_t)spec_operand_elements(&s->operand[i]) * sizeof(double));
    if (of_positions)
      assert_memory_equal(same.positions->data, g->positions->data,
                          (size_t)(sets * TOKENS * s->n_axes) * sizeof(double));
    for (int i = 0; i < 2; i++) assert_true(tensor_identical(same.back[i], g->back[i]));
  }
}

static void against_reference(fixture *f, const char *name, bool of_positions) {
  const spec *s = f->spec;
  int64_t sets = f->positions->ndim == 3 ? BATCH : 1;
  gradient_sum **operands = reference_operand_sums(f->memory, s);
  gradient_sum *positions = arena_array(f->memory, gradient_sum, BATCH * TOKENS * s->n_axes);
  reference_backward call = {.batches = BATCH,
                             .tokens = TOKENS,
                             .position_sets = sets,
                             .positions = f->position_values,
                             .operands = f->operands.values,
                             .operand = operands,
                             .position = positions};
  reference_rows *rows[2] = {&call.q, &call.k};
  for (int i = 0; i < 2; i++) {
    int64_t count = BATCH * f->x[i]->shape[1] * TOKENS * s->head_dim;
    *rows[i] = (reference_rows){.heads = f->x[i]->shape[1],
                                .x = numbers_of(f, f->x[i]),
                                .g = gradients_of(f, i),
                                .gradient = arena_array(f->memory, gradient_sum, count)};
  }
  reference_encode_backward(s, &call);
  compared_operands += s->n_operands;
  compared_positions += of_positions;
  forward(f, f->x, f->y);
  double rounded = f->type == NUMBER_F32 ? 0x1p-18 : f->type == NUMBER_F16 ? 0x1p-10 : 0x1p-7;
  for (int from_x = 0; from_x < 2; from_x++) {
    double before = from_x ? 3 : 0, bound = from_x && !is_rebased(s) ? 0x1p-18 : rounded;
    uint32_t flags = from_x ? PEGEN_GRAD_FROM_INPUT | PEGEN_GRAD_ACCUMULATE : 0;
    gradients g = new_gradients(f, NUMBER_F64, flags, 1, from_x ? before : NAN);
    all_gradients(f, of_positions, from_x ? f->x : f->y, &g);
    for (int i = 0; i < s->n_operands; i++)
      compare(name, s->operand[i].name, g.operands[i], operands[i], spec_operand_elements(&s->operand[i]), before,
              bound);
    if (of_positions) compare(name, "positions", g.positions, positions, sets * TOKENS * s->n_axes, before, bound);
    for (int i = 0; i < 2; i++) assert_true(tensor_identical(g.back[i], f->back[i])); /* of rows alone */
    is_same_in_parts(f, of_positions, from_x ? f->x : f->y, &g, from_x ? before : NAN, all_gradients);
    if (f->kernel->prepare_backward) {
      gradients tabled = new_gradients(f, NUMBER_F64, flags, 1, from_x ? before : NAN);
      gradients_by_table(f, of_positions, from_x ? f->x : f->y, &tabled);
      for (int i = 0; i < s->n_operands; i++)
        compare(name, s->operand[i].name, tabled.operands[i], operands[i], spec_operand_elements(&s->operand[i]),
                before, bound);
      if (of_positions)
        compare(name, "positions", tabled.positions, positions, sets * TOKENS * s->n_axes, before, bound);
      is_same_in_parts(f, of_positions, from_x ? f->x : f->y, &tabled, from_x ? before : NAN, gradients_by_table);
      compared_tables++;
    }
    gradients narrow = new_gradients(f, NUMBER_F32, flags, 3, before);
    all_gradients(f, of_positions, from_x ? f->x : f->y, &narrow);
    for (int i = 0; i < s->n_operands; i++)
      compare(name, s->operand[i].name, narrow.operands[i], operands[i], spec_operand_elements(&s->operand[i]), before,
              bound + 0x1p-20);
  }
}

/* Encodings of whole steps of positions have none. */
static bool has_gradient(fixture *f, DLTensor *const *operands, DLTensor *positions) {
  pegen_grad_args grad = {
      .struct_size = sizeof grad, .q_out = f->g[0], .q = f->back[0], .operands = operands, .positions = positions};
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = f->kernel->n_operands,
                     .operands = f->operands.tensors,
                     .positions = f->positions,
                     .q = f->x[0],
                     .grad = &grad};
  size_t bytes = f->kernel->encode_backward_workspace(&args);
  args.workspace = arena_alloc(f->memory, bytes + 8);
  int error = f->kernel->encode_backward(&args, 0, 1);
  assert_true(error == 0 || error == PEGEN_ERROR_NO_GRADIENT);
  return error == 0;
}

/* Positions of their own for each batch, and one set for both. */
static void of_operands(fixture *f, const char *name) {
  const spec *s = f->spec;
  gradients g = new_gradients(f, NUMBER_F64, 0, 1, 0);
  bool of_positions = has_gradient(f, NULL, g.positions);
  if (s->n_operands) assert_true(has_gradient(f, g.operands, NULL));
  else if (!of_positions) return;
  against_reference(f, name, of_positions);
  f->positions = tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){TOKENS, s->n_axes}, f->position_values);
  assert_int_equal(backward(f, (const DLTensor *const *)f->g, f->back, 1), 0);
  against_reference(f, name, of_positions);
}

static const pegen_kernel *load(arena *a, const spec *s, const char *target, unsigned dtypes, loaded_kernel **loaded) {
  *loaded = trial_load_gradients(a, s, target, dtypes, VARIANT_OPTIMIZE);
  assert_non_null(*loaded);
  return run_kernel(*loaded);
}

static void holds(const spec *s, const pegen_kernel *kernel, const char *name) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    if (!(kernel->dtypes & (uint32_t)number_type_info(type)->dtype)) continue;
    fixture f = open_fixture(s, kernel, (number_type)type);
    is_adjoint(&f, name);
    is_same_everywhere(&f);
    is_adjoint_by_table(&f, name);
    spoils_its_block(&f);
    of_operands(&f, name);
    arena_destroy(f.memory);
  }
}

static void of_rows(void **state) {
  variant *v = *state;
  arena *a = arena_create();
  loaded_kernel *loaded;
  const char **targets;
  int count = v->n_defines ? 1 : trial_targets(a, NULL, &targets);
  unsigned dtypes = v->n_defines ? VARIANT_DTYPES : 0;
  for (int i = 0; i < count; i++) {
    const spec *s = loader_load(a, v->file, DSL_DIR, v->n_defines, v->define);
    const pegen_kernel *kernel = load(a, s, v->n_defines ? v->target : targets[i], dtypes, &loaded);
    holds(s, kernel, v->name);
    run_unload(loaded);
  }
  loader_define define[VARIANT_MAX_DEFINES + 1];
  memcpy(define, v->define, sizeof v->define);
  static const loader_define more[] = {{"skip_tokens", "2"}, {"inverse", "true"}};
  for (int i = 0; i < 2 && v->n_defines == 0; i++) {
    define[0] = more[i];
    const spec *s = loader_load(a, v->file, DSL_DIR, 1, define);
    holds(s, load(a, s, v->target, VARIANT_DTYPES, &loaded), v->name);
    run_unload(loaded);
  }
  arena_destroy(a);
}

static bool has_gradients(const variant *v) {
  arena *a = arena_create();
  const spec *s = loader_load(a, v->file, DSL_DIR, v->n_defines, v->define);
  const form *f = s ? form_of(s) : NULL;
  bool has = f && f->entries.encode_backward && !f->out_dim; /* of columns: tests/widen */
  arena_destroy(a);
  return has;
}

/* ---- refusals ---- */

#define REFUSED(error, change) \
  do { \
    grad = sound_grad; \
    args = sound; \
    args.grad = &grad; \
    change; \
    assert_int_equal(kernel->encode_backward(&args, 0, 1), PEGEN_ERROR_##error); \
  } while (0)

static void refusals(void **state) {
  (void)state;
  arena *a = arena_create();
  loaded_kernel *loaded;
  const spec *s = loader_load(a, SPECS_DIR "/rope_mixed.lua", DSL_DIR, 0, NULL);
  const pegen_kernel *kernel = load(a, s, NULL, VARIANT_DTYPES, &loaded);
  fixture f = open_fixture(s, kernel, NUMBER_F32);
  const pegen_grad_args sound_grad = {
      .struct_size = sizeof sound_grad, .q_out = f.g[0], .k_out = f.g[1], .q = f.back[0], .k = f.back[1]};
  const pegen_args sound = {
      .struct_size = sizeof sound, .n_operands = 1, .operands = f.operands.tensors, .positions = f.positions};
  pegen_grad_args grad;
  pegen_args args;
  REFUSED(OK, (void)0);
  REFUSED(MISSING_GRADIENT, args.grad = NULL);
  REFUSED(MISSING_GRADIENT, args.struct_size = offsetof(pegen_args, grad));
  REFUSED(STRUCT_SIZE, grad.struct_size = 8);
  REFUSED(GRADIENT_FLAGS, grad.flags = 4);
  REFUSED(MISSING_GRADIENT, (grad.q_out = grad.k_out = NULL, grad.q = grad.k = NULL));
  REFUSED(NO_GRADIENT, grad.v = f.back[0]);
  REFUSED(NO_GRADIENT, grad.lse = f.back[0]);
  REFUSED(MISSING_GRADIENT, grad.k_out = NULL);
  REFUSED(MISSING_POSITIONS, args.positions = NULL);
  DLTensor *gained[] = {full_of(f.memory, NUMBER_F64, f.operands.tensors[0], 0)};
  DLTensor *places = full_of(f.memory, NUMBER_F64, f.positions, 0);
#define REFUSED_OPERAND(error, change) \
  REFUSED(error, (grad.operands = gained, args.q = f.x[0], args.k = f.x[1], args.workspace = room, change))
  double *room = arena_alloc(f.memory, 1 << 20);
  REFUSED_OPERAND(OK, (void)0);
  REFUSED_OPERAND(MISSING_KEPT, args.k = NULL);
  REFUSED_OPERAND(SHAPE_MISMATCH, args.k = f.x[0]);
  REFUSED_OPERAND(WORKSPACE, args.workspace = NULL);
  REFUSED_OPERAND(WORKSPACE, args.workspace_bytes = 8);
  REFUSED_OPERAND(ALIGNMENT, args.workspace = (char *)room + 4);
  REFUSED_OPERAND(OVERLAP, args.workspace = f.back[0]->data);
  REFUSED_OPERAND(OVERLAP, args.workspace = f.x[0]->data);
  REFUSED_OPERAND(OVERLAP, args.workspace = gained[0]->data);
  REFUSED_OPERAND(OVERLAP, (grad.positions = places, args.workspace = places->data));
  /* Not an element of grad->operands is read where there are fewer operands. */
  REFUSED_OPERAND(MISSING_OPERAND, (args.n_operands = 0, grad.operands = (DLTensor *const *)(uintptr_t)64));
  REFUSED_OPERAND(MISSING_POSITIONS, args.positions = NULL);
  REFUSED_OPERAND(NO_GRADIENT, grad.k_positions = places);
  DLTensor wrong = *gained[0], *changed[] = {&wrong};
  wrong.ndim--;
  REFUSED_OPERAND(GRADIENT_SHAPE, grad.operands = changed);
  wrong = *gained[0], wrong.dtype.bits = 16;
  REFUSED_OPERAND(GRADIENT_DTYPE, grad.operands = changed);
  wrong = *gained[0], wrong.data = f.operands.tensors[0]->data;
  REFUSED_OPERAND(OVERLAP, grad.operands = changed);
  wrong = *gained[0], wrong.data = f.x[1]->data;
  REFUSED_OPERAND(OVERLAP, grad.operands = changed);
  wrong = *gained[0], wrong.device.device_type = kDLCUDA;
  REFUSED_OPERAND(DEVICE, grad.operands = changed);
  DLTensor *kept = tensor_copy(f.memory, f.x[0]);
  kept->data = f.back[0]->data;
  REFUSED_OPERAND(OVERLAP, args.q = kept);
  wrong = *places, wrong.shape = (int64_t[]){BATCH, TOKENS, s->n_axes + 1};
  REFUSED_OPERAND(GRADIENT_SHAPE, grad.positions = &wrong);
  wrong = *places, wrong.strides = (int64_t[]){0, s->n_axes, 1};
  REFUSED_OPERAND(STRIDE, grad.positions = &wrong);
  wrong = *places, wrong.data = gained[0]->data;
  REFUSED_OPERAND(OVERLAP, grad.positions = &wrong);
  REFUSED(MISSING_OPERAND, args.n_operands = 0);
  DLTensor shifted = *f.g[0];
  shifted.byte_offset = 4;
  REFUSED(OVERLAP, grad.q = &shifted);
  REFUSED(SHAPE_MISMATCH, grad.q = f.back[1]);
  assert_int_equal(kernel->encode_backward(NULL, 0, 1), PEGEN_ERROR_NULL_ARGS);
  assert_int_equal(kernel->encode_backward(&sound, 1, 1), PEGEN_ERROR_PART);
  run_unload(loaded);
  arena_destroy(f.memory);
  arena_destroy(a);
}

/* What grad->table is refused for, in the call that fills it and in the one that reads it. */
static void refusals_of_tables(void **state) {
  (void)state;
  arena *a = arena_create();
  loaded_kernel *loaded;
  const spec *s = loader_load(a, SPECS_DIR "/rope_mixed.lua", DSL_DIR, 0, NULL);
  const pegen_kernel *kernel = load(a, s, NULL, VARIANT_DTYPES, &loaded);
  fixture f = open_fixture(s, kernel, NUMBER_F32);
  pegen_args prepare = {
      .struct_size = sizeof prepare, .n_operands = 1, .operands = f.operands.tensors, .positions = f.positions};
  size_t bytes = prepare.table_bytes = kernel->table_bytes(&prepare), gained = kernel->gradient_table_bytes(&prepare);
  char *room = arena_alloc(a, bytes + gained + 256), *torques;
  room += (64 - (uintptr_t)room % 64) % 64;
  torques = room + (bytes + 63) / 64 * 64;
  memset(torques, 0x5a, gained);
  prepare.table = room;
  assert_int_equal(kernel->prepare(&prepare, 0, 1), 0);
  DLTensor *of_operands[] = {full_of(a, NUMBER_F64, f.operands.tensors[0], 0)}, *none[] = {NULL};
  DLTensor *places = full_of(a, NUMBER_F64, f.positions, 0);
  pegen_grad_args sound_grad = {
      .struct_size = sizeof sound_grad, .q_out = f.g[0], .q = f.back[0], .table = torques, .table_bytes = gained};
  pegen_args sound = {.struct_size = sizeof sound, .q = f.x[0], .table = room, .table_bytes = bytes}, args;
  pegen_grad_args grad;
  REFUSED(MISSING_TABLE, args.table = NULL);
  REFUSED(NO_GRADIENT, (args.n_operands = 1, grad.operands = of_operands));
  REFUSED(NO_GRADIENT, (args.positions = f.positions, grad.positions = places));
  REFUSED(MISSING_KEPT, args.q = NULL);
  REFUSED(ALIGNMENT, grad.table = torques + 8);
  REFUSED(TABLE_BYTES, grad.table_bytes--);
  REFUSED(OVERLAP, grad.table = room);
  REFUSED(GRADIENT_TABLE, grad.flags = PEGEN_GRAD_ACCUMULATE);
  DLTensor inside = *f.x[0];
  inside.data = torques + 128;
  REFUSED(OVERLAP, args.q = &inside);
  for (size_t i = 0; i < gained; i++) assert_int_equal(torques[i], 0x5a);
  REFUSED(OK, grad.struct_size = PEGEN_GRAD_ARGS_FIRST_SIZE); /* where there is no such field */
  for (size_t i = 0; i < gained; i++) assert_int_equal(torques[i], 0x5a);
  REFUSED(OK, args.n_operands = 0);
  REFUSED(OK, (grad.flags = PEGEN_GRAD_ACCUMULATE, grad.operands = none, args.n_operands = 1));
  REFUSED(GRADIENT_TABLE, grad.flags = PEGEN_GRAD_ACCUMULATE | PEGEN_GRAD_FROM_INPUT);
  /* prepare_backward */
  sound_grad = (pegen_grad_args){
      .struct_size = sizeof sound_grad, .operands = of_operands, .table = torques, .table_bytes = gained};
  sound = prepare;
  sound.table = NULL;
  sound.workspace = arena_alloc(a, 1 << 20);
#define REFUSED_PREPARE(error, change) \
  do { \
    grad = sound_grad; \
    args = sound; \
    args.grad = &grad; \
    change; \
    assert_int_equal(kernel->prepare_backward(&args, 0, 1), PEGEN_ERROR_##error); \
    assert_int_equal(kernel->prepare_backward_finish(&args, 0, 1), PEGEN_ERROR_##error); \
  } while (0)
  REFUSED_PREPARE(OK, (void)0);
  REFUSED_PREPARE(OK, grad.operands = NULL); /* nothing is asked for */
  REFUSED_PREPARE(MISSING_GRADIENT, args.grad = NULL);
  REFUSED_PREPARE(MISSING_TABLE, grad.table = NULL);
  REFUSED_PREPARE(MISSING_TABLE, grad.struct_size = PEGEN_GRAD_ARGS_FIRST_SIZE);
  REFUSED_PREPARE(STRUCT_SIZE, grad.struct_size = PEGEN_GRAD_ARGS_FIRST_SIZE - 8);
  REFUSED_PREPARE(NO_GRADIENT, grad.q_out = f.g[0]);
  REFUSED_PREPARE(NO_GRADIENT, grad.k_positions = places);
  REFUSED_PREPARE(MISSING_OPERAND, args.n_operands = 0);
  REFUSED_PREPARE(MISSING_POSITIONS, args.positions = NULL);
  REFUSED_PREPARE(TABLE_BYTES, grad.table_bytes--);
  REFUSED_PREPARE(WORKSPACE, args.workspace = NULL);
  REFUSED_PREPARE(OVERLAP, args.workspace = torques + 128);
  REFUSED_PREPARE(OVERLAP, args.workspace = torques); /* its header, too */
  inside = *of_operands[0];
  inside.data = torques + gained - 64;
  DLTensor *inside_of[] = {&inside};
  REFUSED_PREPARE(OVERLAP, grad.operands = inside_of);
  DLTensor shared = *f.positions;
  shared.ndim = 2;
  shared.shape++;
  shared.strides = NULL;
  REFUSED_PREPARE(GRADIENT_TABLE, (args.positions = &shared, grad.table = torques)); /* made for two batches */
  torques[16] ^= 1;
  REFUSED_PREPARE(GRADIENT_TABLE, (void)0);
  torques[16] ^= 1;
  REFUSED_PREPARE(GRADIENT_TABLE, (grad.table = room, grad.table_bytes = bytes + gained)); /* a table of prepare */
  assert_int_equal(kernel->gradient_table_bytes(NULL), 0);
  sound.n_operands = 0;
  assert_int_equal(kernel->gradient_table_bytes(&sound), 0);
  run_unload(loaded);
  arena_destroy(f.memory);
  arena_destroy(a);
}

/* ---- what is unusual of a call ---- */

typedef struct unusual {
  arena *memory;
  loaded_kernel *loaded;
  fixture f;
  pegen_grad_args grad;
  pegen_args args;
  DLTensor *gained[2], *places[2]; /* gradients of the operand, of positions of q and k */
} unusual;

/* A sound call for the gradients of rows, of the operand and of positions. */
static void open_unusual(unusual *u, const char *name) {
  loader_define head_dim = {"head_dim", "16"};
  u->memory = arena_create();
  const spec *s = loader_load(u->memory, arena_printf(u->memory, SPECS_DIR "/%s.lua", name), DSL_DIR, 1, &head_dim);
  assert_non_null(s);
  const pegen_kernel *kernel = load(u->memory, s, NULL, VARIANT_DTYPES, &u->loaded);
  u->f = open_fixture(s, kernel, NUMBER_F32);
  fixture *f = &u->f;
  f->positions = tensor_contiguous(f->memory, NUMBER_F64, 2, (int64_t[]){TOKENS, s->n_axes}, f->position_values);
  u->gained[0] = full_of(f->memory, NUMBER_F64, f->operands.tensors[0], NAN);
  for (int i = 0; i < 2; i++) u->places[i] = full_of(f->memory, NUMBER_F64, f->positions, NAN);
  u->grad = (pegen_grad_args){.struct_size = sizeof u->grad,
                              .flags = PEGEN_GRAD_FROM_INPUT,
                              .q_out = f->g[0],
                              .k_out = f->g[1],
                              .q = f->back[0],
                              .k = f->back[1],
                              .operands = u->gained,
                              .positions = u->places[0]};
  u->args = (pegen_args){.struct_size = sizeof u->args,
                         .n_operands = 1,
                         .operands = f->operands.tensors,
                         .positions = f->positions,
                         .q = f->x[0],
                         .k = f->x[1],
                         .workspace = arena_alloc(f->memory, 1 << 20),
                         .workspace_bytes = 1 << 20,
                         .grad = &u->grad};
}

static void close_unusual(unusual *u) {
  run_unload(u->loaded);
  arena_destroy(u->f.memory);
  arena_destroy(u->memory);
}

static void run_unusual(unusual *u) {
  memset(u->args.workspace, 0xff, u->args.workspace_bytes); /* NaN */
  for (int part = 2; part >= 0; part--) assert_int_equal(u->f.kernel->encode_backward(&u->args, part, 3), 0);
  assert_int_equal(u->f.kernel->encode_backward_finish(&u->args, 0, 1), 0);
}

static int64_t elements_of(const DLTensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; i++) count *= t->shape[i];
  return count;
}

static void same_elements(const DLTensor *a, const DLTensor *b) {
  assert_memory_equal(a->data, b->data, (size_t)elements_of(a) * sizeof(double));
}

/* One tensor given for the positions of q and for those of k is as two that are equal. */
static void positions_twice(void **state) {
  (void)state;
  unusual u;
  open_unusual(&u, "rope_mixed");
  u.args.k_positions = tensor_copy(u.f.memory, u.f.positions);
  u.grad.k_positions = u.places[1];
  run_unusual(&u);
  DLTensor *apart[] = {u.places[0], u.places[1]}, *operand = u.gained[0];
  for (int i = 0; i < 2; i++) u.places[i] = full_of(u.f.memory, NUMBER_F64, u.f.positions, NAN);
  u.gained[0] = full_of(u.f.memory, NUMBER_F64, u.f.operands.tensors[0], NAN);
  u.args.k_positions = u.f.positions;
  u.grad.positions = u.places[0];
  u.grad.k_positions = u.places[1];
  run_unusual(&u);
  for (int i = 0; i < 2; i++) same_elements(u.places[i], apart[i]);
  same_elements(u.gained[0], operand);
  assert_true(element(u.places[0], 0) != element(u.places[1], 0));
  close_unusual(&u);
}

/* Gradients that come in and are written nowhere may repeat their elements, as those of sums do, and be what is kept.
 */
static void rows_repeat(void **state) {
  (void)state;
  unusual u;
  open_unusual(&u, "rope_mixed");
  DLTensor once[2], *whole[2];
  int64_t strides[2][4];
  for (int i = 0; i < 2; i++) {
    whole[i] = tensor_copy(u.f.memory, u.f.g[i]);
    EACH(whole[i], b, h, n, c)
    memcpy(tensor_at(whole[i], b, h, n, c), tensor_at(u.f.g[i], 0, 0, 0, c), sizeof(float));
    once[i] = *u.f.g[i];
    once[i].strides = memcpy(strides[i], (int64_t[]){0, 0, 0, 1}, sizeof strides[i]);
  }
  u.grad.q = u.grad.k = NULL;
  u.grad.q_out = whole[0];
  u.grad.k_out = whole[1];
  run_unusual(&u);
  DLTensor *operand = u.gained[0], *places = u.places[0];
  u.gained[0] = full_of(u.f.memory, NUMBER_F64, operand, NAN);
  u.grad.positions = full_of(u.f.memory, NUMBER_F64, places, NAN);
  u.grad.q_out = &once[0];
  u.grad.k_out = &once[1];
  run_unusual(&u);
  same_elements(u.gained[0], operand);
  same_elements(u.grad.positions, places);
  u.grad.k_out = u.f.x[1]; /* also read as k */
  run_unusual(&u);
  u.grad.q = u.f.back[0]; /* but one that is written may not be */
  u.grad.k = &once[1];
  u.grad.k_out = &once[1];
  assert_int_equal(u.f.kernel->encode_backward(&u.args, 0, 1), PEGEN_ERROR_STRIDE);
  close_unusual(&u);
}

/* Without a batch nothing is gained, and that is what is written, or added. */
static void no_rows_of(const char *name) {
  unusual u;
  open_unusual(&u, name);
  DLTensor *all[] = {u.f.g[0], u.f.g[1], u.f.back[0], u.f.back[1], u.f.x[0], u.f.x[1]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i]->shape[0] = 0;
  for (int own = 0; own < 2; own++) {
    u.args.k_positions = own ? u.f.positions : NULL;
    u.grad.k_positions = own ? u.places[1] : NULL;
    run_unusual(&u);
    for (int64_t i = 0; i < elements_of(u.gained[0]); i++) assert_true(element(u.gained[0], i) == 0);
    for (int s = 0; s <= own; s++)
      for (int64_t i = 0; i < elements_of(u.places[s]); i++) assert_true(element(u.places[s], i) == 0);
    u.places[0] = u.grad.positions = full_of(u.f.memory, NUMBER_F64, u.f.positions, NAN);
  }
  u.grad.flags |= PEGEN_GRAD_ACCUMULATE;
  u.places[0] = u.grad.positions = full_of(u.f.memory, NUMBER_F64, u.f.positions, 3);
  run_unusual(&u);
  for (int64_t i = 0; i < elements_of(u.places[0]); i++) assert_true(element(u.places[0], i) == 3);
  close_unusual(&u);
}

static void no_rows(void **state) {
  (void)state;
  no_rows_of("rope_mixed");
  no_rows_of("liere");
}

/* Each part of `finish` writes elements of its own, some but not all, and together they write all of them. */
static void finish_is_shared(void **state) {
  (void)state;
  unusual u;
  open_unusual(&u, "rope_mixed");
  int64_t all = elements_of(u.gained[0]), written = 0;
  for (int part = 2; part >= 0; part--) assert_int_equal(u.f.kernel->encode_backward(&u.args, part, 3), 0);
  for (int part = 0; part < 3; part++) {
    int64_t before = written;
    assert_int_equal(u.f.kernel->encode_backward_finish(&u.args, part, 3), 0);
    written = 0;
    for (int64_t i = 0; i < all; i++) written += !isnan(element(u.gained[0], i));
    assert_true(written - before >= all / 3 && written - before <= all / 3 + 1);
  }
  assert_int_equal(written, all);
  close_unusual(&u);
}

int main(int argc, char **argv) {
  arena *a = arena_create();
  variant *variants;
  int count = variants_read(a, SPECS_DIR, VARIANTS, argc > 1 ? argv[1] : NULL, &variants), n = 0, specs = 0;
  struct CMUnitTest *tests = arena_array(a, struct CMUnitTest, count + CALL_TESTS);
  for (int i = 0; i < count; i++) {
    if (!has_gradients(&variants[i])) continue;
    specs += variants[i].n_defines == 0;
    tests[n++] = (struct CMUnitTest){variants[i].name, of_rows, NULL, NULL, &variants[i]};
  }
  const struct CMUnitTest of_calls[] = {cmocka_unit_test(refusals),        cmocka_unit_test(refusals_of_tables),
                                        cmocka_unit_test(positions_twice), cmocka_unit_test(rows_repeat),
                                        cmocka_unit_test(no_rows),         cmocka_unit_test(finish_is_shared)};
  bool calls = argc == 1 || !strcmp(argv[1], "calls"); /* of no description in particular */
  for (int i = 0; calls && i < CALL_TESTS; i++) tests[n++] = of_calls[i];
  int failed = _cmocka_run_group_tests("backward", tests, (size_t)n, NULL, NULL);
  if (argc == 1 && specs < LEAST_SPECS) { /* a form that loses its gradients is a failure here */
    print_error("%d specs have gradients\n", specs);
    failed++;
  }
  if (argc == 1 &&
      (compared_operands < LEAST_SPECS || compared_positions < 2 * LEAST_SPECS || compared_tables < 2 * LEAST_SPECS)) {
    print_error("%d operands, %d positions and %d tables were compared\n", compared_operands, compared_positions,
                compared_tables);
    failed++;
  }
  arena_destroy(a);
  return failed;
}
