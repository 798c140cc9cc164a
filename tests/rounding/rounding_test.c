/* rounding_test: 16-bit rows of encode are those of float32, rounded once to nearest even, on every target.
 *
 * Rows hold every kind of number of their type, and positions NaN of all bits, among others: what rows are multiplied
 * by is NaN then whose lower half, were it rounded as that of a number, would carry into the sign.
 */
#include "described.h"
#include "scoped.h"
#include "test.h"
#include "verify/trial.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 24 };

static const char *const LINES[] = {
    "rope head_dim=128",
    "rope head_dim=128 layout=split",
    "rope head_dim=80 rotary_dim=40", /* vectors that turn, that do not, and that begin early */
    "rope head_dim=66 rotary_dim=2", /* the first vector is in no pair, others are */
    "rope_mixed heads=3",
    "rope_axial",
    "geope2d",
    "geope3d",             /* one channel of a pair stays */
    "geope3d head_dim=80", /* the last vector is in no pair */
    "geope3d head_dim=128",
    "care",
    "quatro heads=3",
    "sincos",
    "comrope_ld",         /* matrices */
    "liere",
    "./shear",
};

static const uint32_t PLACES[] = {0x7fffffff, 0x7f800001, 0xffffffff, 0xff812345, 0x7f800000, 0xff800000, 0x3f800000};
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

/* Whole numbers, and every third one of those. */
static const DLTensor *places(arena *a, const spec *s) {
  float *values = arena_array(a, float, TOKENS * s->n_axes);
  double *none = arena_array(a, double, TOKENS * s->n_axes);
  for (int i = 0; i < TOKENS * s->n_axes; i++) {
    values[i] = (float)(i * 7 % 31);
    if (i % 3 == 0 && i < 3 * PLACE_COUNT * s->n_axes) memcpy(&values[i], &PLACES[i / 3 % PLACE_COUNT], 4);
  }
  DLTensor *tensor = tensor_contiguous(a, NUMBER_F32, 2, (int64_t[]){TOKENS, s->n_axes}, none);
  memcpy(tensor->data, values, sizeof *values * (size_t)(TOKENS * s->n_axes));
  return tensor;
}

/* Rows of the type, numbers of all bits among ordinary ones, and the same as float32. */
static DLTensor *rows(arena *a, number_type type, int heads, int channels, uint64_t *random, DLTensor **wide) {
  DLTensor *narrow = tensor_rows(a, type, ROWS_BNHD, 1, heads, TOKENS, channels);
  *wide = tensor_rows(a, NUMBER_F32, ROWS_BNHD, 1, heads, TOKENS, channels);
  tensor_randomize(narrow, random);
  int64_t count = (int64_t)TOKENS * heads * channels;
  uint16_t *bits = narrow->data;
  for (int64_t i = 0; i < count; i++) {
    if (i % 61 == 0) bits[i] = (uint16_t)(i * 40503);
    if (i % 67 == 0) bits[i] = (uint16_t)(i * 40503 & 0x807f); /* subnormal */
    ((float *)(*wide)->data)[i] = (float)number_load(type, &bits[i]);
  }
  return narrow;
}

/* A processor's own rounding, of AVX-512 alone, takes what is below the least normal bfloat16 as 0. It rounds no
 * channel that stays as it is, whose numbers are subnormal bfloat16 themselves. */
static bool is_flushed(const char *target, number_type type, uint16_t bits, uint16_t rounded, float exact) {
  return !strcmp(target, "x86-64-v4") && type == NUMBER_BF16 && fabsf(exact) < 0x1p-126f &&
         bits == (signbit(exact) ? 0x8000 : 0) && number_load(type, &rounded) != exact;
}

static void assert_rounded(const char *line, const char *target, number_type type, const DLTensor *narrow,
                           const DLTensor *wide, int64_t count) {
  const uint16_t *bits = narrow->data;
  const float *exact = wide->data;
  for (int64_t i = 0; i < count; i++) {
    uint16_t rounded;
    number_store(type, &rounded, exact[i]);
    if (isnan(exact[i]) ? !isnan(number_load(type, &bits[i]))
                        : bits[i] != rounded && !is_flushed(target, type, bits[i], rounded, exact[i]))
      fail_msg("%s, %s, type %d: element %lld is %04x, of %.9g", line, target, (int)type, (long long)i, bits[i],
               (double)exact[i]);
  }
}

static void compare(arena *a, const char *line, const spec *s, const char *target, const pegen_kernel *kernel,
                    number_type type) {
  uint64_t random = 5;
  int heads = s->heads > 1 ? s->heads : 2;
  trial_operands operands = trial_random_operands(a, s, NUMBER_F32, &random);
  const DLTensor *positions = places(a, s);
  DLTensor *q_wide, *k_wide, *q = rows(a, type, heads, s->head_dim, &random, &q_wide),
                             *k = rows(a, type, heads, s->head_dim, &random, &k_wide);
  DLTensor *q_out = tensor_copy(a, q), *k_out = tensor_copy(a, k), *q_exact = tensor_copy(a, q_wide),
           *k_exact = tensor_copy(a, k_wide);
  int64_t count = (int64_t)TOKENS * heads * s->head_dim;
  assert_int_equal(trial_call(kernel, positions, &operands, q_wide, q_exact, k_wide, k_exact, 1), 0);
  assert_int_equal(trial_call(kernel, positions, &operands, q, q_out, k, k_out, 1), 0);
  assert_rounded(line, target, type, q_out, q_exact, count);
  assert_rounded(line, target, type, k_out, k_exact, count);
  assert_int_equal(trial_call(kernel, positions, &operands, q, q, k, k, 1), 0); /* in place */
  assert_rounded(line, target, type, q, q_exact, count);
}

TEST(rows_are_rounded_once) {
  for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
    SCOPED arena *a = arena_create();
    const char **targets;
    int n_targets = trial_targets(a, NULL, &targets);
    spec *s = described(a, "%s", LINES[i]);
    for (int target = 0; target < n_targets; target++) {
      unsigned dtypes = PEGEN_DTYPE_F32 | PEGEN_DTYPE_BF16 | PEGEN_DTYPE_F16;
      SCOPED_KERNEL *loaded = held(trial_load(a, s, targets[target], dtypes, 2));
      compare(a, LINES[i], s, targets[target], run_kernel(loaded), NUMBER_BF16);
      compare(a, LINES[i], s, targets[target], run_kernel(loaded), NUMBER_F16);
    }
  }
}

/* Numbers below the least normal one lie as far from each other as those above it. */
TEST(subnormal_numbers_are_evenly_spaced) {
  assert_true(number_half_ulp(NUMBER_F16, 1) == 0x1p-11L);
  assert_true(number_half_ulp(NUMBER_F16, 0x1p-14L) == 0x1p-25L);
  assert_true(number_half_ulp(NUMBER_F16, 0x1p-20L) == 0x1p-25L);
  assert_true(number_half_ulp(NUMBER_BF16, 0x1p-130L) == 0x1p-134L);
}

int main(void) { return run_listed(); }
