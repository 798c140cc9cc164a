/* The elementary functions that kernels carry, as they are compiled for every processor of
 * this machine: errors over dense sweeps against long double, and the 16-bit formats
 * against number.c, bit by bit.
 */
#include "base/number.h"
#include "math_harness.h"
#include "mlir/number.h"
#include "mlir/two_float.h"
#include "test.h"
#include "verify/trial.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const long double QUARTER = 1.57079632679489661923132169163975144L; /* pi/2 */
/* The bound of errors of float32 sines with fused multiply-add; without it the polynomials round more often. */
static const long double SINE_BOUND = 1.25L * 0x1p-24L, SINE_WITHOUT_FMA = 1.5L / 1.25L;
static const double FACTOR = 0.63661977236758134308;

static ir_value sinq_f32(ir *b, ir_value x) { return math_sinq_f32(b, (math_phase){.factor = {x}}); }
static ir_value cosq_f32(ir *b, ir_value x) { return math_cosq_f32(b, (math_phase){.factor = {x}}); }
static ir_value sinq_f64(ir *b, ir_value x) { return math_sinq_f64(b, (math_phase){.factor = {x}}); }
static ir_value cosq_f64(ir *b, ir_value x) { return math_cosq_f64(b, (math_phase){.factor = {x}}); }
static ir_value sin_folded(ir *b, ir_value x) { return math_sin_folded_f64(b, (math_phase){.factor = {x}}); }
static ir_value cos_folded(ir *b, ir_value x) { return math_cos_folded_f64(b, (math_phase){.factor = {x}}); }
static ir_value sinq_product(ir *b, ir_value x) {
  return math_sinq_f32(b, (math_phase){true, {x, ir_float(b, ir_type(x), FACTOR)}});
}

static ir_value cosq_product(ir *b, ir_value x) {
  return math_cosq_f32(b, (math_phase){true, {x, ir_float(b, ir_type(x), FACTOR)}});
}

/* The other argument of an angle. */
static ir_value atan2_right(ir *b, ir_value x) { return math_atan2_f64(b, x, ir_float(b, ir_type(x), 1)); }
static ir_value atan2_left(ir *b, ir_value x) { return math_atan2_f64(b, x, ir_float(b, ir_type(x), -0.3)); }
static ir_value atan2_above(ir *b, ir_value x) { return math_atan2_f64(b, ir_float(b, ir_type(x), 2), x); }

/* Splits a number into two float32, for functions of these, which run where code is scalar and every operation rounds
 * by itself. Elsewhere functions of float64 stand in for them. */
static two_float halves(ir *b, ir_value x) {
  ir_value hi = ir_cast(b, "arith.truncf", x, b->f32);
  ir_value rest = ir_op2(b, "arith.subf", x, ir_cast(b, "arith.extf", hi, b->f64));
  return (two_float){.hi = hi, .lo = ir_cast(b, "arith.truncf", rest, b->f32)};
}
static ir_value whole(ir *b, two_float x) {
  ir_value hi = ir_cast(b, "arith.extf", x.hi, b->f64);
  return x.lo.ptr ? ir_op2(b, "arith.addf", hi, ir_cast(b, "arith.extf", x.lo, b->f64)) : hi;
}
static bool is_two_float(const ir *b, ir_value x) { return b->exact && ir_lanes(x) == 0; }
static ir_value two_tanh(ir *b, ir_value x) {
  return is_two_float(b, x) ? whole(b, two_float_tanh(b, halves(b, x))) : math_tanh_f64(b, x);
}
static ir_value two_atan2_right(ir *b, ir_value x) {
  if (!is_two_float(b, x)) return atan2_right(b, x);
  return whole(b, two_float_atan2(b, halves(b, x), two_float_const(b, 1)));
}
static ir_value two_atan2_left(ir *b, ir_value x) {
  if (!is_two_float(b, x)) return atan2_left(b, x);
  return whole(b, two_float_atan2(b, halves(b, x), two_float_const(b, -0.3)));
}
static ir_value two_atan2_above(ir *b, ir_value x) {
  if (!is_two_float(b, x)) return atan2_above(b, x);
  return whole(b, two_float_atan2(b, two_float_const(b, 2), halves(b, x)));
}

static ir_value exp_f32_fused(ir *b, ir_value x) { return math_exp_f32(b, x, true); }
static ir_value exp_f32(ir *b, ir_value x) { return math_exp_f32(b, x, false); }
static ir_value tanh_f32_fused(ir *b, ir_value x) { return math_tanh_f32(b, x, true); }
static ir_value tanh_f32(ir *b, ir_value x) { return math_tanh_f32(b, x, false); }
static ir_value decay_f32_fused(ir *b, ir_value x) { return math_decay_f32(b, x, true); }
static ir_value decay_f32(ir *b, ir_value x) { return math_decay_f32(b, x, false); }

static ir_value f8e4m3_from_f32(ir *b, ir_value x) { return emit_number_bits(b, 0, NUMBER_F8E4M3, x); }
static ir_value f8e5m2_from_f32(ir *b, ir_value x) { return emit_number_bits(b, 0, NUMBER_F8E5M2, x); }

static const math_row ROWS[] = {{"sinq_f32", MATH_F64, MATH_F32, false, sinq_f32},
                                {"cosq_f32", MATH_F64, MATH_F32, false, cosq_f32},
                                {"sinq_product", MATH_F64, MATH_F32, true, sinq_product},
                                {"cosq_product", MATH_F64, MATH_F32, true, cosq_product},
                                {"sinq_f64", MATH_F64, MATH_F64, false, sinq_f64},
                                {"cosq_f64", MATH_F64, MATH_F64, false, cosq_f64},
                                {"sin_folded", MATH_F64, MATH_F64, false, sin_folded},
                                {"cos_folded", MATH_F64, MATH_F64, false, cos_folded},
                                {"exp_f64", MATH_F64, MATH_F64, false, math_exp_f64},
                                {"log_f64", MATH_F64, MATH_F64, false, math_log_f64},
                                {"floor_f64", MATH_F64, MATH_F64, false, math_floor_f64},
                                {"log1p_f64", MATH_F64, MATH_F64, false, math_log1p_f64},
                                {"tanh_f64", MATH_F64, MATH_F64, false, math_tanh_f64},
                                {"atan2_right", MATH_F64, MATH_F64, false, atan2_right},
                                {"atan2_left", MATH_F64, MATH_F64, false, atan2_left},
                                {"atan2_above", MATH_F64, MATH_F64, false, atan2_above},
                                {"two_tanh", MATH_F64, MATH_F64, false, two_tanh},
                                {"two_atan2_right", MATH_F64, MATH_F64, false, two_atan2_right},
                                {"two_atan2_left", MATH_F64, MATH_F64, false, two_atan2_left},
                                {"two_atan2_above", MATH_F64, MATH_F64, false, two_atan2_above},
                                {"exp_f32_fused", MATH_F32, MATH_F32, true, exp_f32_fused},
                                {"exp_f32", MATH_F32, MATH_F32, false, exp_f32},
                                {"tanh_f32_fused", MATH_F32, MATH_F32, true, tanh_f32_fused},
                                {"tanh_f32", MATH_F32, MATH_F32, false, tanh_f32},
                                {"decay_f32_fused", MATH_F32, MATH_F32, true, decay_f32_fused},
                                {"decay_f32", MATH_F32, MATH_F32, false, decay_f32},
                                {"log1p_unit_f32", MATH_F32, MATH_F32, false, math_log1p_unit_f32},
                                {"bf16_from_f32", MATH_F32, MATH_I16, false, math_bf16_from_f32},
                                {"f32_from_bf16", MATH_I16, MATH_F32, false, math_f32_from_bf16},
                                {"f16_from_f32", MATH_F32, MATH_I16, false, math_f16_from_f32},
                                {"f32_from_f16", MATH_I16, MATH_F32, false, math_f32_from_f16},
                                {"f8e4m3", MATH_F32, MATH_I8, false, f8e4m3_from_f32},
                                {"f8e5m2", MATH_F32, MATH_I8, false, f8e5m2_from_f32}};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };

static const math_variant VARIANTS[] = {
#if defined(__aarch64__)
    {"generic", 4, true, false},
    {"generic", 0, true, true},
#else
    {"x86-64-v2", 4, false, false}, {"x86-64-v2", 0, false, false}, {"x86-64-v3", 8, true, false},
    {"x86-64-v3", 0, true, true},   {"x86-64-v4", 16, true, false},
#endif
};
enum { VARIANT_COUNT = sizeof VARIANTS / sizeof *VARIANTS };

static loaded_kernel *loaded[VARIANT_COUNT];

/* NULL: not for this processor, or needs an instruction it has not got. */
static math_function *find(int variant, const char *name) {
  if (!loaded[variant]) return NULL;
  for (int i = 0; i < ROW_COUNT; i++)
    if (!strcmp(ROWS[i].name, name) && ROWS[i].needs_fma && !VARIANTS[variant].has_fma) return NULL;
  return (math_function *)(uintptr_t)run_find(loaded[variant], name);
}

static int load_all(void **state) {
  (void)state;
  for (int v = 0; v < VARIANT_COUNT; v++)
    if (!strcmp(VARIANTS[v].target, "generic") || trial_runnable(VARIANTS[v].target))
      loaded[v] = math_load(&VARIANTS[v], ROWS, ROW_COUNT);
  return 0;
}

static int unload_all(void **state) {
  (void)state;
  for (int v = 0; v < VARIANT_COUNT; v++) run_unload(loaded[v]);
  return 0;
}

/* ---- sweeps ---- */

enum { SWEEP = 1 << 17 };

static double in64[SWEEP], out64[SWEEP];
static float out32[SWEEP];

/* Quarter turns: fine steps around 0, and ever larger ones, also beside every kind of quadrant's border. */
static void fill_phases(double largest) {
  uint64_t random = 1;
  for (int i = 0; i < SWEEP; i++) {
    double x = i < SWEEP / 2 ? -4 + 8.0 * i / (SWEEP / 2)
                             : random_uniform(&random, -1, 1) * pow(largest, random_uniform(&random, 0, 1));
    if (i % 8 == 7) x = nearbyint(x * 2) / 2 + random_uniform(&random, -1, 1) * 1e-9;
    in64[i] = x;
  }
  in64[0] = 0;
}

static long double turns(long double x, bool cosine) {
  long double r = fmodl(x, 4);
  return cosine ? cosl(QUARTER * r) : sinl(QUARTER * r);
}

static void sweep_phases(const char *name, bool cosine, bool product, bool wide, long double fused_bound,
                         double largest) {
  fill_phases(largest);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, name);
    long double worst = 0, bound = VARIANTS[v].has_fma ? fused_bound : fused_bound * SINE_WITHOUT_FMA;
    double where = 0;
    if (!f) continue;
    f(in64, wide ? (void *)out64 : (void *)out32, SWEEP);
    for (int i = 0; i < SWEEP; i++) {
      long double exact = turns(product ? (long double)in64[i] * FACTOR : (long double)in64[i], cosine);
      long double error = fabsl((wide ? (long double)out64[i] : (long double)out32[i]) - exact);
      if (error <= worst) continue;
      worst = error;
      where = in64[i];
    }
    if (!(worst < bound))
      print_error("%s for %s, %d lanes: error %.3Lg at %.17g, bound %.3Lg\n", name, VARIANTS[v].target,
                  VARIANTS[v].lanes, worst, where, bound);
    assert_true(worst < bound);
  }
}

/* 2^24 radians is 2^23.4 quarter turns. */
TEST(sines_f32) {
  sweep_phases("sinq_f32", false, false, false, SINE_BOUND, 0x1p24);
  sweep_phases("cosq_f32", true, false, false, SINE_BOUND, 0x1p24);
  sweep_phases("sinq_product", false, true, false, SINE_BOUND, 0x1p24);
  sweep_phases("sinq_f32", false, false, false, SINE_BOUND,
               0x1p50); /* reduction is exact as far as float64 has fractions */
}

TEST(sines_f64) {
  sweep_phases("sinq_f64", false, false, true, 0x1p-50L, 0x1p24);
  sweep_phases("cosq_f64", true, false, true, 0x1p-50L, 0x1p24);
}

/* Half turns, of which whole ones are taken away. */
static void sweep_folded(const char *name, bool cosine) {
  const long double bound = cosine ? 0x1p-31L : 0x1p-28L;
  fill_phases(0x1p24);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, name);
    long double worst = 0;
    if (!f) continue;
    f(in64, out64, SWEEP);
    for (int i = 0; i < SWEEP; i++) {
      long double left = 2 * ((long double)in64[i] - nearbyintl(in64[i])),
                  error = fabsl(out64[i] - turns(left, cosine));
      if (fabsl(left) != 1 && error > worst) worst = error; /* in the middle between two integers either will do */
    }
    if (!(worst < bound)) print_error("%s for %s: error %.3Lg\n", name, VARIANTS[v].target, worst);
    assert_true(worst < bound);
  }
}

TEST(sines_folded) {
  sweep_folded("sin_folded", false);
  sweep_folded("cos_folded", true);
}

/* Sines and cosines are those of some angle however large a phase is, and NaN where it is infinite. */
TEST(lengths_at_any_phase) {
  static const struct {
    const char *sine, *cosine;
    bool wide;
    long double bound;
  } pairs[] = {{"sinq_f32", "cosq_f32", false, 0x1p-22L},
               {"sinq_product", "cosq_product", false, 0x1p-22L},
               {"sinq_f64", "cosq_f64", true, 0x1p-48L},
               {"sin_folded", "cos_folded", true, 0x1p-27L}};
  static double sine[SWEEP];
  static float sine32[SWEEP];
  uint64_t random = 3;
  for (int i = 0; i < SWEEP; i++) in64[i] = ldexp(random_uniform(&random, -2, 2), random_below(&random, 1023));
  for (int i = 0; i < 3; i++) in64[i] = (double[]){INFINITY, -INFINITY, NAN}[i];
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++)
    for (int v = 0; v < VARIANT_COUNT; v++) {
      math_function *s = find(v, pairs[p].sine), *c = find(v, pairs[p].cosine);
      if (!s || !c) continue;
      s(in64, pairs[p].wide ? (void *)sine : (void *)sine32, SWEEP);
      c(in64, pairs[p].wide ? (void *)out64 : (void *)out32, SWEEP);
      for (int i = 0; i < SWEEP; i++) {
        long double x = pairs[p].wide ? sine[i] : sine32[i], y = pairs[p].wide ? out64[i] : out32[i];
        if (i < 3) assert_true(isnan(x) && isnan(y));
        else if (!(fabsl(hypotl(x, y) - 1) < pairs[p].bound)) {
          print_error("%s for %s at %g: length %Lg\n", pairs[p].sine, VARIANTS[v].target, in64[i], hypotl(x, y));
          fail();
        }
      }
    }
}

static void sweep_relative(const char *name, bool is_log, long double bound) {
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, name);
    long double worst = 0;
    double where = 0;
    if (!f) continue;
    f(in64, out64, SWEEP);
    for (int i = 0; i < SWEEP; i++) {
      long double exact = is_log ? logl(in64[i]) : expl(in64[i]);
      long double error = exact == 0 ? fabsl(out64[i]) : fabsl(out64[i] / exact - 1);
      if (error <= worst) continue;
      worst = error;
      where = in64[i];
    }
    if (!(worst < bound))
      print_error("%s for %s, %d lanes: relative error %.3Lg at %.17g, bound %.3Lg\n", name, VARIANTS[v].target,
                  VARIANTS[v].lanes, worst, where, bound);
    assert_true(worst < bound);
  }
}

TEST(exponentials) {
  for (int i = 0; i < SWEEP; i++) in64[i] = i % 2 ? -708 + 1417.0 * i / SWEEP : -1 + 2.0 * i / SWEEP;
  sweep_relative("exp_f64", false, 0x1p-48L);
}

TEST(logarithms) {
  uint64_t random = 2;
  for (int i = 0; i < SWEEP; i++)
    in64[i] = i % 2 ? ldexp(random_uniform(&random, 1, 2), random_below(&random, 2046) - 1022) : 0.5 + 2.0 * i / SWEEP;
  sweep_relative("log_f64", true, 0x1p-45L);
}

TEST(ends_of_the_range) {
  const double inf = INFINITY;
  static const double x[] = {-INFINITY, INFINITY, NAN, -1000, 1000, 0, -1, 1, 710, -746};
  enum { COUNT = 16 };
  double in[COUNT] = {0}, out[COUNT];
  memcpy(in, x, sizeof x);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, "exp_f64"), *g = find(v, "log_f64"), *h = find(v, "sinq_f64");
    if (!f) continue;
    f(in, out, COUNT);
    assert_true(out[0] == 0 && out[1] == inf && isnan(out[2]) && out[3] == 0 && out[4] == inf && out[5] == 1 &&
                out[8] == inf && out[9] == 0);
    g(in, out, COUNT);
    assert_true(isnan(out[0]) && out[1] == inf && isnan(out[2]) && isnan(out[3]) && out[5] == -inf && isnan(out[6]) &&
                out[7] == 0);
    h(in, out, COUNT);
    assert_true(isnan(out[0]) && isnan(out[1]) && isnan(out[2]) && out[5] == 0 && out[6] == -1 && out[7] == 1);
  }
}

static long double right(long double x) { return atan2l(x, 1); }
static long double left(long double x) { return atan2l(x, -0.3); }
static long double above(long double x) { return atan2l(2, x); }

/* Relative errors of functions that saturate, for numbers of all sizes, both signs, 0, infinities and NaN. */
TEST(saturating) {
  static const struct {
    const char *name;
    long double (*exact)(long double), bound;
  } cases[] = {{"tanh_f64", tanhl, 0x1p-45L},      {"atan2_right", right, 0x1p-45L},
               {"atan2_left", left, 0x1p-49L},     {"atan2_above", above, 0x1p-49L},
               {"two_tanh", tanhl, 0x1p-28L},      {"two_atan2_right", right, 0x1p-30L},
               {"two_atan2_left", left, 0x1p-30L}, {"two_atan2_above", above, 0x1p-30L}};
  uint64_t random = 9;
  for (int i = 0; i < SWEEP; i++)
    in64[i] = i % 2 ? random_uniform(&random, -4, 4)
                    : (i % 4 ? -1 : 1) * exp(random_uniform(&random, -20, 10)); /* float32 holds them, too */
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int v = 0; v < VARIANT_COUNT; v++) {
      math_function *f = find(v, cases[c].name);
      long double worst = 0;
      if (!f) continue;
      f(in64, out64, SWEEP);
      for (int i = 0; i < SWEEP; i++) {
        long double value = cases[c].exact(in64[i]), error = fabsl(out64[i] / value - 1);
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
      }
      if (!(worst < cases[c].bound))
        print_error("%s for %s, %d lanes: error %.3Lg\n", cases[c].name, VARIANTS[v].target, VARIANTS[v].lanes, worst);
      assert_true(worst < cases[c].bound);
    }
  enum { COUNT = 16 };
  double x[COUNT] = {0, -0.0, INFINITY, -INFINITY, NAN, 800, -800}, y[COUNT];
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, "tanh_f64"), *g = find(v, "atan2_left"), *h = find(v, "atan2_above");
    if (!f) continue;
    f(x, y, COUNT);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 1 && y[3] == -1 && isnan(y[4]) && y[5] == 1 && y[6] == -1);
    g(x, y, COUNT);
    assert_true(fabs(y[0] - 3.14159265358979323846) < 1e-15 && y[1] == y[0] && isnan(y[4]));
    assert_true(fabs(y[2] - 1.57079632679489661923) < 1e-15 && y[3] == -y[2]);
    h(x, y, COUNT);
    assert_true(fabs(y[0] - 1.57079632679489661923) < 1e-15 && y[1] == y[0] && isnan(y[4]));
    assert_true(fabs(y[2]) < 1e-15 && fabs(y[3] - 3.14159265358979323846) < 1e-15);
  }
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *g = find(v, "two_atan2_left"), *h = find(v, "two_atan2_above");
    if (!g) continue;
    g(x, y, COUNT);
    assert_true(fabs(y[2] - 1.57079632679489661923) < 1e-7 && y[3] == -y[2] && isnan(y[4]));
    h(x, y, COUNT);
    assert_true(fabs(y[2]) < 1e-7 && fabs(y[3] - 3.14159265358979323846) < 1e-6 && isnan(y[4]));
  }
}

/* What a softplus is made of. */
static float in32[SWEEP];

static void sweep_f32(const char *name, long double (*exact)(long double), long double bound) {
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, name);
    long double worst = 0;
    float where = 0;
    if (!f) continue;
    f(in32, out32, SWEEP);
    for (int i = 0; i < SWEEP; i++) {
      long double value = exact(in32[i]), error = value == 0 ? fabsl(out32[i]) : fabsl(out32[i] / value - 1);
      if (error > worst || isnan(out32[i])) worst = isnan(out32[i]) ? INFINITY : error, where = in32[i];
    }
    if (!(worst < bound))
      print_error("%s for %s, %d lanes: error %.3Lg at %.9g\n", name, VARIANTS[v].target, VARIANTS[v].lanes, worst,
                  where);
    assert_true(worst < bound);
  }
}

TEST(tanh_of_floats) {
  static const char *const names[] = {"tanh_f32", "tanh_f32_fused"};
  for (int n = 0; n < 2; n++) {
    for (int i = 0; i < SWEEP; i++) /* around the border of its two ways, far out and near 0 */
      in32[i] = (float)(i % 3 == 0 ? -2 + 4.0 * i / SWEEP : i % 3 == 1 ? -120 + 240.0 * i / SWEEP : 1e-3 * i / SWEEP);
    in32[0] = 0.625f, in32[1] = -0.62499994f, in32[2] = 0, in32[3] = 1e-30f;
    sweep_f32(names[n], tanhl, 0x1p-21L);
    in32[0] = INFINITY, in32[1] = -INFINITY, in32[2] = NAN;
    for (int v = 0; v < VARIANT_COUNT; v++) {
      math_function *f = find(v, names[n]);
      if (!f) continue;
      f(in32, out32, SWEEP);
      assert_true(out32[0] == 1 && out32[1] == -1 && isnan(out32[2]));
    }
  }
}

TEST(softplus_parts) {
  for (int i = 0; i < SWEEP; i++) in32[i] = (float)(-87 + 175.0 * i / (SWEEP - 1));
  sweep_f32("exp_f32_fused", expl, 0x1p-21L);
  sweep_f32("exp_f32", expl, 0x1p-21L);
  for (int i = 0; i < SWEEP; i++) in32[i] = (float)(-87 + 87.0 * i / (SWEEP - 1));
  sweep_f32("decay_f32_fused", expl, 0x1p-21L);
  sweep_f32("decay_f32", expl, 0x1p-21L);
  static const uint32_t payloads[] = {0x7fc00000, 0x7fc00001, 0x7fc01fff,
                                      0xffffffff}; /* low bits would count in an exponent */
  memcpy(in32, payloads, sizeof payloads);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, "exp_f32");
    if (f) f(in32, out32, SWEEP);
    for (int i = 0; f && i < 4; i++) assert_true(isnan(out32[i]));
  }
  uint64_t random = 3;
  for (int i = 0; i < SWEEP; i++) in32[i] = i % 2 ? (float)i / SWEEP : (float)exp(random_uniform(&random, -87, 0));
  in32[0] = 0, in32[1] = 1;
  sweep_f32("log1p_unit_f32", log1pl, 0x1p-21L);
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, "log1p_f64");
    if (!f) continue;
    for (int i = 0; i < SWEEP; i++)
      in64[i] = i % 3 ? random_uniform(&random, -0.5, 0.5) * exp(random_uniform(&random, -300, 0))
                      : exp(random_uniform(&random, 0, 300));
    f(in64, out64, SWEEP);
    for (int i = 0; i < SWEEP; i++) assert_true(fabsl(out64[i] - log1pl(in64[i])) <= 0x1p-44L * fabsl(log1pl(in64[i])));
  }
}

/* Integers are their own floor; both sides of them and the middle between them round down. */
TEST(floors) {
  uint64_t random = 6;
  for (int i = 0; i < SWEEP; i++) {
    double integer =
        i < 64 ? i - 32 : nearbyint(random_uniform(&random, -1, 1) * pow(2, random_uniform(&random, 0, 50)));
    double beside[] = {integer, nextafter(integer, INFINITY), nextafter(integer, -INFINITY), integer + 0.5};
    in64[i] = beside[i % 4];
  }
  for (int v = 0; v < VARIANT_COUNT; v++) {
    math_function *f = find(v, "floor_f64");
    if (f) f(in64, out64, SWEEP);
    for (int i = 0; f && i < SWEEP; i++) assert_true(out64[i] == floor(in64[i]));
  }
}

/* ---- the 16-bit formats ---- */

enum { PATTERNS = 1 << 16 };

TEST(widening) {
  static uint16_t bits[PATTERNS];
  static float wide[PATTERNS];
  for (int i = 0; i < PATTERNS; i++) bits[i] = (uint16_t)i;
  for (int v = 0; v < VARIANT_COUNT; v++)
    for (int half = 0; half < 2; half++) {
      math_function *f = find(v, half ? "f32_from_f16" : "f32_from_bf16");
      if (!f) continue;
      f(bits, wide, PATTERNS);
      for (int i = 0; i < PATTERNS; i++) {
        double expected = number_load(half ? NUMBER_F16 : NUMBER_BF16, &bits[i]);
        if (isnan(expected)) assert_true(isnan(wide[i]));
        else assert_true(wide[i] == expected && !signbit(wide[i]) == !signbit(expected));
      }
    }
}

/* Every upper half of a float32 with lower halves that are ties of either format, and next to ties. */
TEST(rounding) {
  static const uint16_t low[] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff};
  static float in[PATTERNS];
  static uint16_t out[PATTERNS];
  for (size_t l = 0; l < sizeof low / sizeof *low; l++) {
    for (uint32_t i = 0; i < PATTERNS; i++) memcpy(&in[i], &(uint32_t){i << 16 | low[l]}, 4);
    for (int half = 0; half < 2; half++) {
      static uint16_t expected[PATTERNS];
      for (int i = 0; i < PATTERNS; i++) number_store(half ? NUMBER_F16 : NUMBER_BF16, &expected[i], in[i]);
      for (int v = 0; v < VARIANT_COUNT; v++) {
        math_function *f = find(v, half ? "f16_from_f32" : "bf16_from_f32");
        if (!f) continue;
        f(in, out, PATTERNS);
        for (int i = 0; i < PATTERNS; i++) {
          bool same =
              isnan(in[i]) ? isnan(number_load(half ? NUMBER_F16 : NUMBER_BF16, &out[i])) : out[i] == expected[i];
          if (!same)
            print_error("%s of %a for %s: %04x, expected %04x\n", half ? "f16" : "bf16", in[i], VARIANTS[v].target,
                        out[i], expected[i]);
          assert_true(same);
        }
      }
    }
  }
}

/* ---- float8 ---- */

/* The formats by their definition in words, sharing nothing with base/number: OCP 8-bit floating point, 5.1. */
static double f8_value(number_type type, unsigned code) {
  bool is_e4m3 = type == NUMBER_F8E4M3;
  int fraction_bits = is_e4m3 ? 3 : 2, bias = is_e4m3 ? 7 : 15;
  int exponent = code >> fraction_bits & (is_e4m3 ? 15 : 31), fraction = code & ((1 << fraction_bits) - 1);
  double magnitude = exponent ? ldexp(1 + ldexp(fraction, -fraction_bits), exponent - bias)
                              : ldexp(fraction, 1 - bias - fraction_bits);
  if (is_e4m3 && (code & 127) == 127) magnitude = NAN;
  if (!is_e4m3 && exponent == 31) magnitude = fraction ? NAN : INFINITY;
  return code & 128 ? -magnitude : magnitude;
}

/* The code nearest to x by trying all that are finite, the even one of two. */
static unsigned f8_nearest(number_type type, double x) {
  unsigned best = 0, sign = signbit(x) ? 128 : 0;
  if (isnan(x)) return 127;
  for (unsigned code = 1; code < 128 && isfinite(f8_value(type, code)); code++) {
    double now = fabs(f8_value(type, code) - fabs(x)), before = fabs(f8_value(type, best) - fabs(x));
    if (fabs(x) >= f8_value(type, code) || now < before || (now == before && code % 2 == 0)) best = code;
  }
  return sign | best;
}

TEST(f8_codes) {
  for (int type = NUMBER_CHANNEL_TYPES; type < NUMBER_OUT_TYPES; type++)
    for (unsigned code = 0; code < 256; code++) {
      uint8_t byte = (uint8_t)code, back;
      double value = f8_value(type, code), loaded = number_load(type, &byte);
      if (isnan(value)) assert_true(isnan(loaded));
      else assert_true(value == loaded && !signbit(value) == !signbit(loaded));
      if (!isfinite(value)) continue;
      number_store(type, &back, loaded);
      assert_int_equal(back, code);
    }
}

/* All codes, what lies halfway between them, the neighbours of both in float32, and what is beyond them. */
static int f8_inputs(number_type type, float *in) {
  int n = 0;
  for (unsigned code = 0; code < 127 && isfinite(f8_value(type, code)); code++) {
    double here = f8_value(type, code), next = f8_value(type, code + 1);
    float of[] = {(float)here, (float)((here + (isfinite(next) ? next : 2 * here)) / 2)};
    for (int i = 0; i < 2; i++)
      for (int side = -1; side <= 1; side++) {
        float x = side ? nextafterf(of[i], side * INFINITY) : of[i];
        in[n++] = x;
        in[n++] = -x;
      }
  }
  const float others[] = {NAN,   -NAN,  INFINITY, -INFINITY, 448,   449,     464,     465,       480,
                          57344, 61440, 61441,    65536,     1e30f, FLT_MAX, FLT_MIN, 0x1p-149f, -0x1p-149f};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) in[n++] = others[i];
  while (n % 16) in[n++] = 0;
  return n;
}

static void expect_f8(number_type type, const char *who, const float *in, const uint8_t *out, int count) {
  for (int i = 0; i < count; i++) {
    unsigned expected = f8_nearest(type, in[i]);
    if (out[i] != expected)
      fail_msg("%s of %a by %s: %02x, expected %02x", number_name(type), in[i], who, out[i], expected);
  }
}

TEST(f8_rounding) {
  static float in[PATTERNS];
  static uint8_t out[PATTERNS];
  for (int type = NUMBER_CHANNEL_TYPES; type < NUMBER_OUT_TYPES; type++)
    for (int all = 0; all < 2; all++) {
      int count = all ? PATTERNS : f8_inputs(type, in);
      for (uint32_t i = 0; all && i < PATTERNS; i++) memcpy(&in[i], &(uint32_t){i << 16}, 4); /* every upper half */
      for (int i = 0; i < count; i++) number_store(type, &out[i], in[i]);
      expect_f8(type, "number_store", in, out, count);
      for (int i = 0; i < count; i++) out[i] = pegen_number_narrow(type, in[i]);
      expect_f8(type, "the driver", in, out, count);
      for (int v = 0; v < VARIANT_COUNT; v++) {
        math_function *f = find(v, number_name(type));
        if (!f) continue;
        f(in, out, count);
        expect_f8(type, VARIANTS[v].target, in, out, count);
      }
    }
}

/* Numbers of 16 bits are rounded right from float64 and wider: every finite code, what lies halfway to the next, and
 * the neighbours of both. */
TEST(rounding_wide) {
  for (int type = NUMBER_BF16; type <= NUMBER_F16; type++) {
    uint16_t code = 0, next = 1, stored;
    for (; isfinite(number_load(type, &next)); code++, next++) {
      double here = number_load(type, &code), above = number_load(type, &next), middle = (here + above) / 2;
      for (int sign = 0; sign < 2; sign++)
        for (int side = -1; side <= 1; side++) {
          long double at[] = {here + side * (middle - here) * 0x1p-20, middle + side * (middle - here) * 0x1p-40L};
          uint16_t wanted[] = {code, side < 0 || (side == 0 && code % 2 == 0) ? code : next};
          for (int i = 0; i < 2; i++) {
            if (at[i] < 0) continue; /* below 0 */
            number_store(type, &stored, sign ? -at[i] : at[i]);
            assert_int_equal(stored, wanted[i] | sign << 15);
          }
        }
    }
  }
}

int main(void) { return run_listed_between(load_all, unload_all); }
