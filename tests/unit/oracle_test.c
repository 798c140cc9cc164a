/* What comparisons with the reference say: of outputs in a basis that the kernel alone knows, and behind a change of
 * basis. The outputs are made here, right ones and wrong ones, so that the comparisons themselves are tested.
 */
#include "test.h"
#include "verify/oracle.h"
#include "verify/reference.h"

#include "../../kernel/skew.h"

#include <math.h>
#include <string.h>

enum { B = 6, BLOCKS = 2, DIM = B * BLOCKS + 1, TOKENS = 5, BATCH = 2, SKIP = 1 };

typedef struct fixture {
  arena *memory;
  spec *spec;
  spec_dense dense;
  spec_basis basis;
  int channel[B * BLOCKS];
  int32_t offset[BLOCKS], basis_offset;
  double raw[BLOCKS * B * B + DIM * DIM], positions[TOKENS];
  const double *values[1];
  trial_operands operands;
  DLTensor *in, *out;
  oracle *oracle;
} fixture;

/* One axis, one operand that holds the generators and then the matrix of a change of basis. */
static fixture *open(bool schur, bool basis) {
  arena *a = arena_create();
  fixture *f = arena_new(a, fixture);
  spec *s = arena_new(a, spec);
  uint64_t random = 5;
  f->memory = a, f->spec = s;
  for (size_t i = 0; i < sizeof f->raw / sizeof *f->raw; i++) f->raw[i] = random_uniform(&random, -1, 1);
  for (int n = 0; n < TOKENS; n++) f->positions[n] = n * 0.7;
  for (int i = 0; i < B * BLOCKS; i++) f->channel[i] = i % BLOCKS * B + i / BLOCKS;
  for (int g = 0; g < BLOCKS; g++) f->offset[g] = g * B * B;
  f->basis_offset = BLOCKS * B * B;
  s->name = "x", s->file = "x.lua", s->axis[0] = "t", s->n_axes = 1, s->heads = 1;
  s->n_components = B, s->n_blocks = BLOCKS, s->head_dim = DIM, s->channel = f->channel;
  s->amplitude = 1, s->skip_tokens = SKIP;
  s->pool = expr_pool_create(a, BLOCKS);
  s->angle[0] = expr_position(s->pool, 0);
  f->dense = (spec_dense){.generator = {{0, SKEW_UPPER, 1, f->offset}}, .map = schur ? DENSE_SCHUR : DENSE_EXP};
  f->basis = (spec_basis){{0, SKEW_DIFFERENCE, 1, &f->basis_offset}};
  s->dense = &f->dense;
  s->basis = basis ? &f->basis : NULL;
  f->values[0] = f->raw;
  f->operands.values = f->values;
  f->in = tensor_rows(a, NUMBER_F32, ROWS_BHND, BATCH, 1, TOKENS, DIM);
  tensor_randomize(f->in, &random);
  f->out = tensor_copy(a, f->in);
  f->oracle = oracle_create(a, s, 1, TOKENS, f->positions, &f->operands);
  return f;
}

static double at(const DLTensor *t, int64_t b, int64_t n, int c) {
  return number_load(NUMBER_F32, tensor_at(t, b, 0, n, c));
}
static void put(const DLTensor *t, int64_t b, int64_t n, int c, double value) {
  number_store(NUMBER_F32, tensor_at(t, b, 0, n, c), value);
}

/* Out of the reference, then by the transposed Schur basis of the block where `turn` says so for the token. */
static void make_schur_output(fixture *f, bool (*turn)(int64_t token)) {
  for (int g = 0; g < BLOCKS; g++) {
    double a[B * B], basis[B * B], lambda[B / 2];
    memcpy(a, f->raw + f->offset[g], sizeof a);
    pegen_skew_make(B, PEGEN_SKEW_UPPER_RULE, a);
    pegen_schur(B, a, basis, lambda);
    for (int64_t b = 0; b < BATCH; b++)
      for (int64_t n = 0; n < TOKENS; n++) {
        long double matrix[B * B], turned[B];
        reference_block(f->spec, &f->positions[n], f->values, 0, g, matrix);
        for (int i = 0; i < B; i++) {
          turned[i] = 0;
          for (int j = 0; j < B; j++) turned[i] += (n < SKIP ? i == j : matrix[i * B + j]) * at(f->in, b, n, g * B + j);
        }
        for (int i = 0; i < B; i++) {
          long double sum = 0;
          for (int j = 0; j < B; j++) sum += turn(n) ? basis[i * B + j] * turned[j] : i == j ? turned[j] : 0;
          put(f->out, b, n, g * B + i, (double)sum);
        }
      }
  }
}

static trial_error compare(const fixture *f) {
  trial_error worst = {0};
  trial_compare_rows(f->oracle, f->in, f->out, &worst);
  return worst;
}

static bool always(int64_t token) { return token >= 0; }
static bool not_the_skipped(int64_t token) { return token >= SKIP; }
static bool all_but_one(int64_t token) { return token != 3; }

TEST(a_basis_of_the_kernels_own_is_accepted) {
  fixture *f = open(true, false);
  make_schur_output(f, always);
  trial_error right = compare(f);
  assert_false(right.spoilt);
  assert_true(right.error < 0x1p-22L);
  put(f->out, 1, 2, 3, at(f->out, 1, 2, 3) * (1 + 1e-4) + 1e-4);
  assert_true(compare(f).error > 0x1p-20L);
  arena_destroy(f->memory);
}

/* One token, or the skipped one, left in another basis than the others. */
TEST(two_bases_are_not) {
  fixture *f = open(true, false);
  make_schur_output(f, not_the_skipped);
  assert_true(compare(f).error > 0x1p-10L);
  make_schur_output(f, all_but_one);
  assert_true(compare(f).error > 0x1p-10L);
  make_schur_output(f, always);
  put(f->out, 0, 4, DIM - 1, 2); /* the channel of no block */
  assert_true(compare(f).spoilt);
  make_schur_output(f, always);
  put(f->out, 0, 4, 0, NAN);
  trial_error spoilt = compare(f);
  assert_true(spoilt.spoilt || spoilt.error > 1);
  arena_destroy(f->memory);
}

/* Behind a change of basis: all channels, those of no block and of skipped tokens as well. */
TEST(a_change_of_basis_comes_first) {
  for (int inverse = 0; inverse < 2; inverse++) {
    fixture *f = open(false, true);
    f->spec->inverse = inverse;
    for (int64_t b = 0; b < BATCH; b++)
      for (int64_t n = 0; n < TOKENS; n++) {
        double row[DIM];
        long double exact[DIM];
        for (int c = 0; c < DIM; c++) row[c] = at(f->in, b, n, c);
        spec plain = *f->spec;
        if (n < SKIP) plain.angle[0] = expr_const(plain.pool, 0); /* not turned, but changed */
        reference_row(&plain, &f->positions[n], f->values, 0, row, exact);
        for (int c = 0; c < DIM; c++) put(f->out, b, n, c, (double)exact[c]);
      }
    trial_error right = compare(f);
    assert_false(right.spoilt);
    assert_true(right.error < 0x1p-23L);
    put(f->out, 0, 0, DIM - 1, at(f->in, 0, 0, DIM - 1)); /* as it came */
    assert_true(compare(f).error > 0x1p-10L);
    arena_destroy(f->memory);
  }
}

/* Turning back undoes it, and C is orthogonal: rows keep their norms. */
TEST(the_reference_turns_back) {
  fixture *f = open(false, true);
  spec back = *f->spec;
  back.inverse = true;
  double row[DIM], there[DIM];
  long double exact[DIM], again[DIM], before = 0, after = 0;
  for (int c = 0; c < DIM; c++) row[c] = at(f->in, 0, 2, c);
  reference_row(f->spec, &f->positions[2], f->values, 0, row, exact);
  for (int c = 0; c < DIM; c++) there[c] = (double)exact[c], before += row[c] * row[c], after += exact[c] * exact[c];
  assert_true(fabsl(before - after) < 1e-15L);
  reference_row(&back, &f->positions[2], f->values, 0, there, again);
  for (int c = 0; c < DIM; c++) assert_true(fabsl(again[c] - row[c]) < 1e-15L);
  arena_destroy(f->memory);
}

/* The norm that errors are measured by: exact for one plane, and never too small. */
TEST(norms_of_exponents_are_spectral) {
  fixture *f = open(false, false);
  for (int g = 0; g < BLOCKS; g++) {
    double a[B * B], basis[B * B], lambda[B / 2];
    memcpy(a, f->raw + f->offset[g], sizeof a);
    pegen_skew_make(B, PEGEN_SKEW_UPPER_RULE, a);
    pegen_schur(B, a, basis, lambda);
    long double norm = reference_norm(f->spec, &f->positions[3], f->values, 0, g), exact = lambda[0] * f->positions[3];
    assert_true(norm >= exact * (1 - 1e-15L) && norm <= 1.04L * exact);
  }
  arena_destroy(f->memory);
}

int main(void) { return run_listed(); }
