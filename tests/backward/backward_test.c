/* Gradients of rows: the adjoint identity with random directions for every description that has them, with defaults for
 * every target that runs here and every number type, and for its variants; rows in other places and parts the same to
 * the bit; NaN in its block; then those of operands and positions against the reference, at once and by way of a table.
 * What is refused, and calls that are unusual: calls_test.c. `backward_test NAME` is of one description, `backward_test
 * --more` of those in specs/more, with their defaults, for the best target: rows that turn by inputs, maps of channels,
 * matrices that a description writes and parts have calls, or blocks, of their own (tests/inputs, tests/maps,
 * tests/linear, tests/parts).
 */
#include "fixture.h"
#include "scoped.h"

#include "forms/form.h"
#include "variants.h"
#include "verify/reference_gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_SPECS = 10, LEAST_MORE = 6 };

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

/* encode_backward by a table is the adjoint of encode by it, and has nearly the gradients that it has without. */
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

/* Computes gradients by way of a table of torques, in two calls: for rows of q, and then for those of k. The first one
 * runs twice: it writes the table, and does not add to what it finds. */
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

static void holds(const spec *s, const pegen_kernel *kernel, const char *name) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    if (!(kernel->dtypes & (uint32_t)number_type_info(type)->dtype)) continue;
    SCOPED fixture f = open_fixture(s, kernel, (number_type)type);
    is_adjoint(&f, name);
    is_same_everywhere(&f);
    is_adjoint_by_table(&f, name);
    spoils_its_block(&f);
    of_operands(&f, name);
  }
}

static bool of_more; /* specs/more */

static void of_rows(void **state) {
  variant *v = *state;
  SCOPED arena *a = arena_create();
  loaded_kernel *loaded;
  const char **targets;
  int count = v->n_defines || of_more ? 1 : trial_targets(a, NULL, &targets);
  unsigned dtypes = v->n_defines ? VARIANT_DTYPES : 0;
  for (int i = 0; i < count; i++) {
    const spec *s = loader_load(a, v->file, DSL_DIR, v->n_defines, v->define);
    const pegen_kernel *kernel = load(a, s, count == 1 ? v->target : targets[i], dtypes, &loaded);
    holds(s, kernel, v->name);
    run_unload(loaded);
  }
  loader_define define[VARIANT_MAX_DEFINES + 1];
  memcpy(define, v->define, sizeof v->define);
  static const loader_define stock[] = {{"skip_tokens", "2"}, {"inverse", "true"}}; /* which all of these know */
  for (int i = 0; i < 2 && v->n_defines == 0 && !of_more; i++) {
    define[0] = stock[i];
    const spec *s = loader_load(a, v->file, DSL_DIR, 1, define);
    holds(s, load(a, s, v->target, VARIANT_DTYPES, &loaded), v->name);
    run_unload(loaded);
  }
}

static bool has_gradients(const variant *v) {
  SCOPED arena *a = arena_create();
  const spec *s = loader_load(a, v->file, DSL_DIR, v->n_defines, v->define);
  const form *f = s ? form_of(s) : NULL;
  bool has = f && f->entries.encode_backward && !f->out_dim; /* of columns: tests/widen */
  has = has && !spec_turns_rows(s) && !spec_needs_input(s) && !s->n_parts;
  return has;
}

int main(int argc, char **argv) {
  SCOPED arena *a = arena_create();
  variant *variants;
  of_more = argc > 1 && strcmp(argv[1], "--more") == 0;
  const char *folder = of_more ? SPECS_DIR "/more" : SPECS_DIR, *only = argc > 1 && !of_more ? argv[1] : NULL;
  int count = variants_read(a, folder, VARIANTS, only, &variants), specs = 0;
  for (int i = 0; i < count; i++) {
    if (!has_gradients(&variants[i])) continue;
    specs += variants[i].n_defines == 0;
    list_row(variants[i].name, of_rows, &variants[i]);
  }
  int failed = run_listed();
  if (of_more && specs < LEAST_MORE) {
    print_error("%d specs in specs/more have gradients\n", specs);
    failed++;
  }
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
  return failed;
}
