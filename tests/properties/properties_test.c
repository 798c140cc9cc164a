/* Properties that every encoding's kernel must have, for every spec in specs/.
 *
 * They hold whatever the encoding is, so a new spec is tested by being there; an argument
 * names one spec, a second one another folder than specs/. Groups are told apart by the
 * algebra (compact: norms, adjoints) and by asking the reference whether rho(r) rho(s) = rho(r + s) (relative
 * positions), not by name.
 */
#include "scoped.h"
#include "test.h"
#include "variants.h"
#include "verify/oracle.h"
#include "verify/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, TOKENS = 9, ANY_HEADS = 3 };

/* One variant's kernel with data: q of random numbers, and what became of it. */
typedef struct fixture {
  arena *memory;
  variant *variant;
  const spec *spec;
  const pegen_kernel *kernel;
  uint64_t random;
  int64_t heads;
  const double *values; /* [BATCH][TOKENS][axes] */
  DLTensor *positions;
  trial_operands operands;
  DLTensor *q, *out;
} fixture;

static bool compact(const fixture *f) { return f->spec->algebra.q == 0 && f->spec->algebra.r == 0; }

/* The output stays in a basis that the kernel alone knows: there is no inverse, and skipped tokens change their basis.
 */
static bool has_own_basis(const fixture *f) { return f->spec->dense && f->spec->dense->map == DENSE_SCHUR; }

static size_t row_bytes(const fixture *f) { return sizeof(float) * (size_t)f->spec->head_dim; }

static DLTensor *new_rows(fixture *f, number_type type, row_order order, int64_t tokens) {
  DLTensor *t = tensor_rows(f->memory, type, order, BATCH, f->heads, tokens, f->spec->head_dim);
  tensor_randomize(t, &f->random);
  return t;
}

static DLTensor *run(const fixture *f, const pegen_kernel *kernel, const DLTensor *positions, const DLTensor *x) {
  DLTensor *out = tensor_copy(f->memory, x);
  tensor_randomize(out, &(uint64_t){7});
  assert_int_equal(trial_call(kernel, positions, &f->operands, x, out, NULL, NULL, 1), 0);
  return out;
}

static fixture fixture_open(void **state) {
  fixture f = {.memory = arena_create(), .variant = *state, .random = 42};
  f.kernel = variant_kernel(f.variant);
  f.spec = f.variant->spec;
  f.heads = f.spec->heads > 1 ? f.spec->heads : ANY_HEADS;
  double *values = arena_array(f.memory, double, BATCH * TOKENS * f.spec->n_axes);
  double reach = f.spec->dense ? 4 : 60;
  for (int i = 0; i < BATCH * TOKENS * f.spec->n_axes; i++) values[i] = random_uniform(&f.random, -reach, reach);
  f.values = values;
  f.positions = tensor_contiguous(f.memory, NUMBER_F64, 3, (int64_t[]){BATCH, TOKENS, f.spec->n_axes}, values);
  f.operands = trial_random_operands(f.memory, f.spec, NUMBER_F32, &f.random);
  f.q = new_rows(&f, NUMBER_F32, ROWS_BHND, TOKENS);
  f.out = run(&f, f.kernel, f.positions, f.q);
  return f;
}

/* <x, y> over the channels of one block; over the whole row where a change of basis mixes the blocks. */
static double block_product(const spec *s, const DLTensor *x, const DLTensor *y, int64_t b, int64_t h, int64_t nx,
                            int64_t ny, int block) {
  double sum = 0;
  for (int c = 0; s->basis && c < s->head_dim; c++) sum += tensor_get(x, b, h, nx, c) * tensor_get(y, b, h, ny, c);
  for (int i = 0; !s->basis && i < s->n_components; i++) {
    int channel = s->channel[i * s->n_blocks + block];
    sum += tensor_get(x, b, h, nx, channel) * tensor_get(y, b, h, ny, channel);
  }
  return sum;
}

/* What errors of a block are multiplied by: 1, or the norm of M where it turns by exp(M). */
static double magnification(const fixture *f, const double *values, int64_t b, int64_t h, int64_t n, int block) {
  const spec *s = f->spec;
  if (!s->dense) return 1;
  return fmax(1, (double)reference_norm(s, values + (b * TOKENS + n) * s->n_axes, f->operands.values,
                                        s->heads > 1 ? (int)h : 0, block));
}

/* ---- the group ---- */

static void norm_is_kept(void **state) {
  SCOPED fixture f = fixture_open(state);
  double factor = fabs(f.spec->inverse ? 1 / f.spec->amplitude : f.spec->amplitude);
  EACH_ROW(f.q, b, h, n)
  for (int block = 0; compact(&f) && block < f.spec->n_blocks; block++) {
    double before = sqrt(block_product(f.spec, f.q, f.q, b, h, n, n, block));
    double after = sqrt(block_product(f.spec, f.out, f.out, b, h, n, n, block));
    double bound = 0x1p-20 * magnification(&f, f.values, b, h, n, block);
    if (!(fabs(after - factor * before) <= bound * factor * before))
      fail_msg("norm %.9g became %.9g in batch %d head %d token %d block %d", before, after, (int)b, (int)h, (int)n,
               block);
  }
}

/* <R x, y> = <x, R^T y>, and R^T is the inverse times the square of the amplitude. */
static void inverse_is_adjoint(void **state) {
  SCOPED fixture f = fixture_open(state);
  if (has_own_basis(&f)) return;
  DLTensor *y = new_rows(&f, NUMBER_F32, ROWS_BHND, TOKENS);
  DLTensor *turned = run(&f, variant_inverse(f.variant), f.positions, y);
  double factor = f.spec->amplitude;
  EACH_ROW(f.q, b, h, n)
  for (int block = 0; compact(&f) && block < f.spec->n_blocks; block++) {
    double left = block_product(f.spec, f.out, y, b, h, n, n, block);
    double right = factor * factor * block_product(f.spec, f.q, turned, b, h, n, n, block);
    double size = factor * sqrt(block_product(f.spec, f.q, f.q, b, h, n, n, block) *
                                block_product(f.spec, y, y, b, h, n, n, block));
    double bound = 0x1p-19 * magnification(&f, f.values, b, h, n, block);
    if (!(fabs(left - right) <= bound * size))
      fail_msg("<Rx,y> = %.9g, <x,R'y> = %.9g in block %d", left, right, block);
  }
}

static void inverse_turns_back(void **state) {
  SCOPED fixture f = fixture_open(state);
  if (has_own_basis(&f)) return;
  DLTensor *back = run(&f, variant_inverse(f.variant), f.positions, f.out);
  EACH_ROW(f.q, b, h, n)
  for (int block = 0; compact(&f) && block < f.spec->n_blocks; block++) {
    double norm = sqrt(block_product(f.spec, f.q, f.q, b, h, n, n, block));
    double bound = 0x1p-19 * magnification(&f, f.values, b, h, n, block);
    for (int i = 0; i < f.spec->n_components; i++) {
      int c = f.spec->channel[i * f.spec->n_blocks + block];
      if (!(fabs(tensor_get(back, b, h, n, c) - tensor_get(f.q, b, h, n, c)) <= bound * norm))
        fail_msg("channel %d came back as %.9g, was %.9g", c, tensor_get(back, b, h, n, c),
                 tensor_get(f.q, b, h, n, c));
    }
  }
}

/* Whether rho(r) rho(s) = rho(r + s) in every block, by the reference. */
static bool is_homomorphism(const fixture *f) {
  const spec *s = f->spec;
  int m = s->n_components;
  double r[SPEC_MAX_AXES], t[SPEC_MAX_AXES], sum[SPEC_MAX_AXES];
  for (int a = 0; a < s->n_axes; a++) {
    r[a] = 0.3 + 0.7 * a;
    t[a] = 1.1 - 0.4 * a;
    sum[a] = r[a] + t[a];
  }
  long double *x = arena_array(f->memory, long double, 3 * m * m), *y = x + m * m, *z = y + m * m;
  for (int head = 0; head < s->heads; head++)
    for (int block = 0; block < s->n_blocks; block++) {
      reference_block(s, r, f->operands.values, head, block, x);
      reference_block(s, t, f->operands.values, head, block, y);
      reference_block(s, sum, f->operands.values, head, block, z);
      for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) {
          long double product = 0;
          for (int k = 0; k < m; k++) product += x[i * m + k] * y[k * m + j];
          if (fabsl(product - s->amplitude * z[i * m + j]) > 1e-9L) return false;
        }
    }
  return true;
}

/* <R(r_i) q_i, R(r_j) k_j> does not change when all positions move by the same step. */
static void scores_are_relative(void **state) {
  SCOPED fixture f = fixture_open(state);
  if (!compact(&f) || !is_homomorphism(&f)) {
    print_message("             (generators do not commute: scores are not relative)\n");
    return;
  }
  double *moved = arena_array(f.memory, double, BATCH * TOKENS * f.spec->n_axes);
  for (int i = 0; i < BATCH * TOKENS * f.spec->n_axes; i++)
    moved[i] = f.values[i] + (f.spec->dense ? 3 : 1000 + 77 * (i % f.spec->n_axes));
  DLTensor *positions = tensor_contiguous(f.memory, NUMBER_F64, 3, (int64_t[]){BATCH, TOKENS, f.spec->n_axes}, moved);
  DLTensor *k = new_rows(&f, NUMBER_F32, ROWS_BHND, TOKENS), *k_out = run(&f, f.kernel, f.positions, k);
  DLTensor *q_moved = run(&f, f.kernel, positions, f.q), *k_moved = run(&f, f.kernel, positions, k);
  EACH_ROW(f.q, b, h, n)
  for (int64_t other = 0; other < TOKENS; other++)
    for (int block = 0; block < f.spec->n_blocks; block++) {
      double here = block_product(f.spec, f.out, k_out, b, h, n, other, block);
      double there = block_product(f.spec, q_moved, k_moved, b, h, n, other, block);
      double size = sqrt(block_product(f.spec, f.out, f.out, b, h, n, n, block) *
                         block_product(f.spec, k_out, k_out, b, h, other, other, block));
      double bound =
          0x1p-18 * fmax(magnification(&f, moved, b, h, n, block), magnification(&f, moved, b, h, other, block));
      if (!(fabs(here - there) <= bound * size)) fail_msg("score %.9g of block %d became %.9g", here, block, there);
    }
}

/* ---- the interface, to the bit ---- */

static void parts_do_not_matter(void **state) {
  SCOPED fixture f = fixture_open(state);
  static const int counts[] = {2, 3, 7, 64, 1000};
  DLTensor *k = new_rows(&f, NUMBER_F32, ROWS_BNHD, TOKENS), *k_whole = run(&f, f.kernel, f.positions, k);
  for (int i = 0; i < 5; i++) {
    DLTensor *out = tensor_copy(f.memory, f.q), *k_out = tensor_copy(f.memory, k);
    assert_int_equal(trial_call(f.kernel, f.positions, &f.operands, f.q, out, k, k_out, counts[i]), 0);
    assert_true(tensor_identical(out, f.out));
    assert_true(tensor_identical(k_out, k_whole));
    /* In place each row may be turned by one part only. */
    DLTensor *here = tensor_copy(f.memory, f.q);
    assert_int_equal(trial_call(f.kernel, f.positions, &f.operands, here, here, NULL, NULL, counts[i]), 0);
    assert_true(tensor_identical(here, f.out));
  }
}

static void strides_do_not_matter(void **state) {
  SCOPED fixture f = fixture_open(state);
  for (int order = 0; order < ROW_ORDER_COUNT; order++) {
    DLTensor *x = tensor_rows(f.memory, NUMBER_F32, (row_order)order, BATCH, f.heads, TOKENS, f.spec->head_dim);
    EACH_ROW(f.q, b, h, n) memcpy(tensor_at(x, b, h, n, 0), tensor_at(f.q, b, h, n, 0), row_bytes(&f));
    DLTensor *before = tensor_copy(f.memory, x);
    assert_true(tensor_identical(run(&f, f.kernel, f.positions, x), f.out));
    assert_int_equal(trial_call(f.kernel, f.positions, &f.operands, x, x, NULL, NULL, 1), 0);
    assert_true(tensor_identical(x, f.out));
    assert_true(tensor_gaps_identical(x, before));
  }
  /* Tokens from the last to the first, and one head's rows read by all heads. */
  DLTensor backwards = *f.q, broadcast = *f.q;
  int64_t strides[2][4];
  memcpy(strides[0], f.q->strides, sizeof strides[0]);
  memcpy(strides[1], f.q->strides, sizeof strides[1]);
  backwards.strides = strides[0];
  backwards.data = tensor_at(f.q, 0, 0, TOKENS - 1, 0);
  strides[0][2] = -strides[0][2];
  broadcast.strides = strides[1];
  strides[1][1] = 0;
  const DLTensor *views[] = {&backwards, &broadcast};
  for (int i = 0; i < 2; i++) {
    DLTensor *plain = tensor_copy(f.memory, f.q), *out = tensor_copy(f.memory, f.q);
    EACH_ROW(f.q, b, h, n) memcpy(tensor_at(plain, b, h, n, 0), tensor_at(views[i], b, h, n, 0), row_bytes(&f));
    assert_int_equal(trial_call(f.kernel, f.positions, &f.operands, views[i], out, NULL, NULL, 1), 0);
    assert_true(tensor_identical(out, run(&f, f.kernel, f.positions, plain)));
  }
}

/* Whether the action of an exponential may stand for the product with it: how many rows a matrix has, and so the batch,
 * decides. */
static bool may_act(const fixture *f) {
  const spec *s = f->spec;
  return s->dense && s->dense->map != DENSE_SCHUR && !s->dense->is_f64 && s->heads > 1 && s->n_components > 8;
}

/* Rows that were computed by themselves and among others: the same bits, or within the bounds of both. */
static void assert_same_row(const fixture *f, const float *x, const float *y) {
  if (!may_act(f)) {
    assert_memory_equal(x, y, row_bytes(f));
    return;
  }
  double norm = 0, difference = 0;
  for (int c = 0; c < f->spec->head_dim; c++) {
    norm = hypot(norm, x[c]);
    difference = hypot(difference, (double)x[c] - y[c]);
  }
  assert_true(difference <= 0x1p-17 * norm);
}

/* Positions per batch are the calls of the batches one by one; k may have positions and a length of its own. */
static void batches_and_k_stand_alone(void **state) {
  SCOPED fixture f = fixture_open(state);
  const int axes = f.spec->n_axes, k_tokens = TOKENS - 4;
  for (int64_t b = 0; b < BATCH; b++) {
    DLTensor *positions =
        tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){TOKENS, axes}, f.values + b * TOKENS * axes);
    DLTensor *out = run(&f, f.kernel, positions, f.q);
    for (int64_t h = 0; h < f.heads; h++)
      for (int64_t n = 0; n < TOKENS; n++)
        assert_same_row(&f, tensor_at(out, b, h, n, 0), tensor_at(f.out, b, h, n, 0));
  }
  DLTensor *k = new_rows(&f, NUMBER_F32, ROWS_BHND, k_tokens), *out = tensor_copy(f.memory, f.q),
           *k_out = tensor_copy(f.memory, k);
  DLTensor *k_positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){k_tokens, axes}, f.values + axes);
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = f.kernel->n_operands,
                     .q = f.q,
                     .q_out = out,
                     .k = k,
                     .k_out = k_out,
                     .positions = f.positions,
                     .k_positions = k_positions,
                     .operands = f.operands.tensors};
  assert_int_equal(f.kernel->encode(&args, 0, 1), 0);
  assert_true(tensor_identical(out, f.out));
  assert_true(tensor_identical(k_out, run(&f, f.kernel, k_positions, k)));
}

/* A position that is not a number, and rows that are not, spoil their own token alone. */
static void tokens_stand_alone(void **state) {
  SCOPED fixture f = fixture_open(state);
  enum { BAD = 4 };
  double *values = arena_array(f.memory, double, BATCH * TOKENS * f.spec->n_axes);
  memcpy(values, f.values, sizeof(double) * (size_t)(BATCH * TOKENS * f.spec->n_axes));
  for (int b = 0; b < BATCH; b++) values[(b * TOKENS + BAD) * f.spec->n_axes] = b ? INFINITY : NAN;
  DLTensor *positions = tensor_contiguous(f.memory, NUMBER_F64, 3, (int64_t[]){BATCH, TOKENS, f.spec->n_axes}, values);
  DLTensor *out = run(&f, f.kernel, positions, f.q);
  EACH_ROW(f.q, b, h, n)
  if (n != BAD) assert_memory_equal(tensor_at(out, b, h, n, 0), tensor_at(f.out, b, h, n, 0), row_bytes(&f));
}

static void no_tokens_is_fine(void **state) {
  SCOPED fixture f = fixture_open(state);
  if (f.spec->skip_tokens == 0) {
    DLTensor *x = tensor_rows(f.memory, NUMBER_F32, ROWS_BHND, BATCH, f.heads, 0, f.spec->head_dim);
    DLTensor *positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){0, f.spec->n_axes}, f.values);
    assert_int_equal(trial_call(f.kernel, positions, &f.operands, x, x, NULL, NULL, 3), 0);
  }
}

/* ---- options of every spec ---- */

static void skipped_tokens_pass(void **state) {
  SCOPED fixture f = fixture_open(state);
  const pegen_kernel *skipping = variant_skipping(f.variant);
  assert_int_equal(skipping->skip_tokens, SKIPPED_TOKENS);
  DLTensor *out = run(&f, skipping, f.positions, f.q);
  EACH_ROW(f.q, b, h, n) {
    if (n < SKIPPED_TOKENS && (has_own_basis(&f) || f.spec->basis))
      continue; /* in the new basis, too: check compares inner products */
    const DLTensor *expected = n < SKIPPED_TOKENS ? f.q : f.out;
    assert_memory_equal(tensor_at(out, b, h, n, 0), tensor_at(expected, b, h, n, 0), row_bytes(&f));
  }
}

/* A built-in grid gives the bits of the same positions in a tensor. */
static void grid_is_positions(void **state) {
  SCOPED fixture f = fixture_open(state);
  const char *text = "";
  int64_t tokens = 1;
  for (int a = 0; a < f.spec->n_axes; a++) {
    int side = a < 2 ? 3 - a : 2;
    text = arena_printf(f.memory, "%s%s%d", text, a ? "," : "", side);
    tokens *= side;
  }
  tokens += SKIPPED_TOKENS;
  spec *s;
  loaded_kernel *grid = variant_grid(f.variant, f.memory, text, &s);
  double *values = arena_array(f.memory, double, tokens * s->n_axes);
  for (int64_t n = s->skip_tokens; n < tokens; n++) reference_grid(s, n, values + n * s->n_axes);
  DLTensor *positions = tensor_contiguous(f.memory, NUMBER_F64, 2, (int64_t[]){tokens, s->n_axes}, values);
  DLTensor *x = new_rows(&f, NUMBER_F32, ROWS_BNHD, tokens);
  assert_true(tensor_identical(run(&f, run_kernel(grid), NULL, x), run(&f, variant_skipping(f.variant), positions, x)));
  run_unload(grid);
}

/* ---- targets and number types ---- */

static void targets_agree(void **state) {
  SCOPED fixture f = fixture_open(state);
  const char **targets;
  int count = trial_targets(f.memory, NULL, &targets);
  oracle *o = oracle_create(f.memory, f.spec, BATCH, TOKENS, f.values, &f.operands);
  for (int i = 0; i < count; i++) {
    SCOPED_KERNEL *loaded = held(trial_load(f.memory, f.spec, targets[i], 0, 2));
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
      DLTensor *x = new_rows(&f, (number_type)type, ROWS_BHND, TOKENS),
               *out = run(&f, run_kernel(loaded), f.positions, x);
      trial_error worst = {0};
      trial_compare_rows(o, x, out, &worst);
      if (worst.spoilt || worst.error > 0x1p-20)
        fail_msg("%s %s: %s", targets[i], number_type_info((number_type)type)->name,
                 trial_error_text(f.memory, &worst));
    }
  }
}

/* One object with all targets gives the bits of the best one. */
static void dispatch_takes_the_best(void **state) {
  SCOPED fixture f = fixture_open(state);
  const char **targets, *list = "";
  int count = trial_targets(f.memory, NULL, &targets);
  for (int i = 0; i < count; i++) list = arena_printf(f.memory, "%s%s%s", list, i ? "," : "", targets[i]);
  loaded_kernel *all = held(trial_load(f.memory, f.spec, list, VARIANT_DTYPES, VARIANT_OPTIMIZE));
  assert_true(tensor_identical(run(&f, run_kernel(all), f.positions, f.q), f.out));
  run_unload(all);
}

typedef struct property {
  const char *name;
  CMUnitTestFunction check;
} property;

static const property PROPERTIES[] = {
    {"norm is kept", norm_is_kept},
    {"inverse is adjoint", inverse_is_adjoint},
    {"inverse turns back", inverse_turns_back},
    {"scores are relative", scores_are_relative},
    {"parts do not matter", parts_do_not_matter},
    {"strides do not matter", strides_do_not_matter},
    {"batches and k stand alone", batches_and_k_stand_alone},
    {"tokens stand alone", tokens_stand_alone},
    {"no tokens is fine", no_tokens_is_fine},
    {"skipped tokens pass", skipped_tokens_pass},
    {"grid is positions", grid_is_positions},
    {"targets agree with the reference", targets_agree},
    {"dispatch takes the best", dispatch_takes_the_best},
};
enum { N_PROPERTIES = sizeof PROPERTIES / sizeof PROPERTIES[0] };

int main(int argc, char **argv) {
  SCOPED arena *a = arena_create();
  variant *variants;
  int count = variants_read(a, argc > 2 ? argv[2] : SPECS_DIR, VARIANTS, argc > 1 ? argv[1] : NULL, &variants);
  for (int i = 0; i < count; i++)
    for (int p = 0; p < N_PROPERTIES; p++)
      list_row(arena_printf(a, "%s: %s", variants[i].name, PROPERTIES[p].name), PROPERTIES[p].check, &variants[i]);
  int failed = run_listed();
  for (int i = 0; i < count; i++) variant_close(&variants[i]);
  return failed;
}
