/* mlir/arithmetic: the tables; see mlir/arithmetic.h. A new operation is a row here, of each wide arithmetic at least.
 * ORDER EXPR_OP */
#include "mlir/arithmetic.h"

#include "mlir/arith.h"
#include "mlir/math.h"

typedef const arithmetic_context *context;

/* ---- numbers of one part: float32 and float64, scalars or vectors ---- */

/* An operation, whose value is of the builder b and the arguments v; and one whose value is a number of one part. */
#define OPERATION(name, value) \
  static two_float name(context c, const two_float *v) { \
    ir *b = c->b; \
    return value; \
  }
#define ONE(name, value) OPERATION(name, two_float_f32(value))
ONE(one_add, ir_op2(b, "arith.addf", v[0].hi, v[1].hi))
ONE(one_sub, ir_op2(b, "arith.subf", v[0].hi, v[1].hi))
ONE(one_mul, ir_op2(b, "arith.mulf", v[0].hi, v[1].hi))
ONE(one_div, ir_op2(b, "arith.divf", v[0].hi, v[1].hi))
ONE(one_neg, ir_op1(b, "arith.negf", v[0].hi))
ONE(one_abs, ir_op1(b, "math.absf", v[0].hi))
ONE(one_sqrt, ir_op1(b, "math.sqrt", v[0].hi))

static ir_value one_less(ir *b, two_float x, two_float y) { return ir_compare_float(b, "olt", x.hi, y.hi); }
static ir_value one_nonzero(ir *b, two_float x) {
  return ir_compare_float(b, "une", x.hi, ir_float(b, ir_type(x.hi), 0));
}
static two_float one_select(ir *b, ir_value condition, two_float x, two_float y) {
  return two_float_f32(ir_select(b, condition, x.hi, y.hi));
}
OPERATION(one_min, one_select(b, one_less(b, v[1], v[0]), v[1], v[0]))
ONE(one_max, ir_select(b, ir_compare_float(b, "ogt", v[1].hi, v[0].hi), v[1].hi, v[0].hi))

/* What one instruction does, in float32 as in float64. */
#define ONE_CYCLE \
  [EXPR_ADD] = one_add, [EXPR_SUB] = one_sub, [EXPR_MUL] = one_mul, [EXPR_MIN] = one_min, [EXPR_MAX] = one_max, \
  [EXPR_NEG] = one_neg, [EXPR_ABS] = one_abs
#define ONE_INSTRUCTION ONE_CYCLE, [EXPR_DIV] = one_div, [EXPR_SQRT] = one_sqrt

ONE(exp_f32, math_exp_f32(b, v[0].hi, c->has_fma))
ONE(tanh_f32, math_tanh_f32(b, v[0].hi, c->has_fma))

/* exp(-|x|): what a sigmoid and a softplus are made of, and no overflow. */
static ir_value minus_size(ir *b, ir_value x) { return ir_op1(b, "arith.negf", ir_op1(b, "math.absf", x)); }
static ir_value one_number(ir *b, ir_value x, double value) { return ir_float(b, ir_type(x), value); }
static ir_value below_0(ir *b, ir_value x) { return ir_compare_float(b, "olt", x, one_number(b, x, 0)); }

static ir_value sigmoid_of(ir *b, ir_value x, ir_value decay) {
  ir_value one = one_number(b, x, 1), numerator = ir_select(b, below_0(b, x), decay, one);
  return ir_op2(b, "arith.divf", numerator, add(b, one, decay));
}
/* NaN stays: it is not below 0. */
static ir_value softplus_of(ir *b, ir_value x, ir_value log1p) {
  return add(b, ir_select(b, below_0(b, x), one_number(b, x, 0), x), log1p);
}
static ir_value log1p_of_decay(context c, ir_value x) {
  return math_log1p_unit_f32(c->b, math_decay_f32(c->b, minus_size(c->b, x), c->has_fma));
}
ONE(sigmoid_f32, sigmoid_of(b, v[0].hi, math_exp_f32(b, minus_size(b, v[0].hi), c->has_fma)))
ONE(softplus_f32, softplus_of(b, v[0].hi, log1p_of_decay(c, v[0].hi)))

#define FLOAT64(name, function) ONE(name, function(b, v[0].hi))
FLOAT64(floor_f64, math_floor_f64)
FLOAT64(exp_f64, math_exp_f64)
FLOAT64(log_f64, math_log_f64)
FLOAT64(log1p_f64, math_log1p_f64)
FLOAT64(tanh_f64, math_tanh_f64)
static ir_value decay_f64(ir *b, ir_value x) { return math_exp_f64(b, minus_size(b, x)); }
static ir_value sigmoid(ir *b, ir_value x) { return sigmoid_of(b, x, decay_f64(b, x)); }
static ir_value softplus(ir *b, ir_value x) { return softplus_of(b, x, math_log1p_f64(b, decay_f64(b, x))); }
FLOAT64(sigmoid_f64, sigmoid)
FLOAT64(softplus_f64, softplus)
ONE(round32_f64, ir_cast(b, "arith.extf", ir_cast(b, "arith.truncf", v[0].hi, b->f32), b->f64))
ONE(atan2_f64, math_atan2_f64(b, v[0].hi, v[1].hi))
static ir_value sinq(ir *b, ir_value x) { return math_sinq_f64(b, (math_phase){.factor = {x}}); }
static ir_value cosq(ir *b, ir_value x) { return math_cosq_f64(b, (math_phase){.factor = {x}}); }
static ir_value sin_folded(ir *b, ir_value x) { return math_sin_folded_f64(b, (math_phase){.factor = {x}}); }
static ir_value cos_folded(ir *b, ir_value x) { return math_cos_folded_f64(b, (math_phase){.factor = {x}}); }
FLOAT64(sinq_f64, sinq)
FLOAT64(cosq_f64, cosq)
FLOAT64(sin_folded_f64, sin_folded)
FLOAT64(cos_folded_f64, cos_folded)

static two_float constant_of(ir *b, MlirType element, int lanes, double value) {
  return two_float_f32(ir_float(b, lanes ? ir_vector(b, lanes, element) : element, value));
}
static two_float constant_f32(ir *b, int lanes, double value) { return constant_of(b, b->f32, lanes, value); }
static two_float constant_f64(ir *b, int lanes, double value) { return constant_of(b, b->f64, lanes, value); }

static bool is_float32(ir *b, ir_value x) { return mlirTypeEqual(ir_type(x), ir_like(b, x, b->f32)); }
static two_float to_float32(ir *b, two_float x) {
  return is_float32(b, x.hi) ? x : two_float_f32(ir_cast(b, "arith.truncf", x.hi, b->f32));
}
static two_float to_float64(ir *b, two_float x) {
  return is_float32(b, x.hi) ? two_float_f32(ir_cast(b, "arith.extf", x.hi, b->f64)) : x;
}

#define ONE_CHOICES(constant_of_type, to_type) \
  .constant = constant_of_type, .convert = to_type, .less = one_less, .nonzero = one_nonzero, .select = one_select

static const arithmetic FLOAT32 = {.operation = {ONE_INSTRUCTION, [EXPR_EXP] = exp_f32, [EXPR_TANH] = tanh_f32,
                                                 [EXPR_SIGMOID] = sigmoid_f32, [EXPR_SOFTPLUS] = softplus_f32},
                                   ONE_CHOICES(constant_f32, to_float32)};

/* There is no floor in SSE2, and no vector of elementary functions anywhere. */
static const arithmetic FLOAT64 = {
    .operation = {ONE_INSTRUCTION, [EXPR_FLOOR] = floor_f64, [EXPR_EXP] = exp_f64, [EXPR_LOG] = log_f64,
                  [EXPR_LOG1P] = log1p_f64, [EXPR_TANH] = tanh_f64, [EXPR_SIGMOID] = sigmoid_f64,
                  [EXPR_SOFTPLUS] = softplus_f64, [EXPR_ATAN2] = atan2_f64, [EXPR_ROUND32] = round32_f64,
                  [EXPR_SINQ] = sinq_f64, [EXPR_COSQ] = cosq_f64, [EXPR_SIN_FOLDED] = sin_folded_f64,
                  [EXPR_COS_FOLDED] = cos_folded_f64},
    ONE_CHOICES(constant_f64, to_float64)};

/* ---- sums of two float32: scalars of a GPU's thread ---- */

#define TWO_OP2(name, function) OPERATION(name, function(b, v[0], v[1]))
TWO_OP2(two_add, two_float_add)
TWO_OP2(two_sub, two_float_sub)
TWO_OP2(two_mul, two_float_mul)
TWO_OP2(two_div, two_float_div)
TWO_OP2(loose_add, two_float_add_loosely)
TWO_OP2(loose_mul, two_float_mul_loosely)
OPERATION(loose_sub, two_float_add_loosely(b, v[0], two_float_neg(b, v[1])))

#define TWO_OP1(name, function) OPERATION(name, function(b, v[0]))
TWO_OP1(two_neg, two_float_neg)
TWO_OP1(two_abs, two_float_abs)
TWO_OP1(two_sqrt, two_float_sqrt)
TWO_OP1(two_floor, two_float_floor)
TWO_OP1(two_exp, two_float_exp)
TWO_OP1(two_log, two_float_log)
TWO_OP1(two_log1p, two_float_log1p)
TWO_OP1(two_tanh, two_float_tanh)
TWO_OP2(two_atan2, two_float_atan2)
ONE(two_round32, two_float_narrow(b, v[0]))
ONE(two_sinq, two_float_sinq(b, v[0]))
ONE(two_cosq, two_float_cosq(b, v[0]))

/* Both with the sign that makes the cosine positive. */
static two_float two_folded(ir *b, two_float x, bool is_sine) {
  two_float quarters = two_float_add(b, x, x);
  two_float cosine = two_float_f32(two_float_cosq(b, quarters));
  if (!is_sine) return two_float_abs(b, cosine);
  two_float sine = two_float_f32(two_float_sinq(b, quarters));
  ir_value turned = two_float_less(b, cosine, two_float_const(b, 0));
  return two_float_select(b, turned, two_float_neg(b, sine), sine);
}
OPERATION(two_sin_folded, two_folded(b, v[0], true))
OPERATION(two_cos_folded, two_folded(b, v[0], false))

OPERATION(two_min, two_float_select(b, two_float_less(b, v[1], v[0]), v[1], v[0]))
OPERATION(two_max, two_float_select(b, two_float_less(b, v[0], v[1]), v[1], v[0]))

/* The errors of infinite sums and products are NaN: what the leading parts alone give is then all there is. */
static two_float two_settle(context c, expr_op op, const two_float *v, two_float y) {
  static const char *const plain[EXPR_OP_COUNT] = {[EXPR_ADD] = "arith.addf",
                                                   [EXPR_SUB] = "arith.subf",
                                                   [EXPR_MUL] = "arith.mulf",
                                                   [EXPR_DIV] = "arith.divf",
                                                   [EXPR_SQRT] = "math.sqrt"};
  if (!plain[op] || !y.lo.ptr) return y;
  ir_value hi = op == EXPR_SQRT ? ir_op1(c->b, plain[op], v[0].hi) : ir_op2(c->b, plain[op], v[0].hi, v[1].hi);
  ir_value is_lost = ir_compare_float(c->b, "uno", y.hi, y.lo);
  two_float settled = two_float_select(c->b, is_lost, two_float_f32(hi), y);
  settled.is_loose = y.is_loose;
  return settled;
}

static two_float two_decay(context c, two_float x) {
  return two_float_exp(c->b, two_float_neg(c->b, two_float_abs(c->b, x)));
}
static two_float two_sigmoid(context c, const two_float *v) {
  two_float zero = two_float_const(c->b, 0), one = two_float_const(c->b, 1), decay = two_decay(c, v[0]);
  two_float numerator = two_float_select(c->b, two_float_less(c->b, v[0], zero), decay, one);
  return two_float_div(c->b, numerator, two_float_add(c->b, one, decay));
}
static two_float two_softplus(context c, const two_float *v) {
  two_float zero = two_float_const(c->b, 0), log1p = two_float_log1p(c->b, two_decay(c, v[0]));
  two_float terms[] = {two_float_select(c->b, two_float_less(c->b, v[0], zero), zero, v[0]), log1p};
  return two_settle(c, EXPR_ADD, terms, two_float_add(c->b, terms[0], terms[1]));
}

static two_float constant_two(ir *b, int lanes, double value) {
  (void)lanes; /* a thread's numbers are scalars */
  return two_float_const(b, value);
}
static two_float to_two(ir *b, two_float x) {
  (void)b; /* a float32 is one */
  return x;
}
static two_float to_narrow(ir *b, two_float x) { return two_float_f32(two_float_narrow(b, x)); }

#define TWO_FLOAT_OPERATIONS(ring, rest) \
  [EXPR_ADD] = ring##_add, [EXPR_SUB] = ring##_sub, [EXPR_MUL] = ring##_mul, [EXPR_DIV] = rest##_div, \
  [EXPR_MIN] = two_min, [EXPR_MAX] = two_max, [EXPR_NEG] = two_neg, [EXPR_ABS] = two_abs, [EXPR_SQRT] = rest##_sqrt, \
  [EXPR_FLOOR] = rest##_floor, [EXPR_EXP] = two_exp, [EXPR_LOG] = two_log, [EXPR_LOG1P] = two_log1p, \
  [EXPR_TANH] = two_tanh, [EXPR_SIGMOID] = two_sigmoid, [EXPR_SOFTPLUS] = two_softplus, [EXPR_ATAN2] = two_atan2, \
  [EXPR_ROUND32] = two_round32, [EXPR_SINQ] = rest##_sinq, [EXPR_COSQ] = rest##_cosq, \
  [EXPR_SIN_FOLDED] = two_sin_folded, [EXPR_COS_FOLDED] = two_cos_folded
#define TWO_FLOAT_CHOICES \
  .settle = two_settle, .constant = constant_two, .convert = to_two, .less = two_float_less, \
  .nonzero = two_float_nonzero, .select = two_float_select

static const arithmetic TWO_FLOAT = {.operation = {TWO_FLOAT_OPERATIONS(two, two)}, TWO_FLOAT_CHOICES};
static const arithmetic TWO_FLOAT_LOOSE = {.operation = {TWO_FLOAT_OPERATIONS(loose, two)}, TWO_FLOAT_CHOICES};

/* A thread's float32: elementary functions are those of two-float numbers. */
static const arithmetic FLOAT32_OF_TWO = {.operation = {ONE_INSTRUCTION}, ONE_CHOICES(constant_f32, to_narrow)};

/* ---- a thread's float32 by the instructions of a GPU that are a few units of the last place off ---- */

/* Only NVIDIA's are used. */
static bool is_fast(const ir *b) { return b->gpu && b->gpu->reciprocal; }

#define FAST(name, accurate, value) \
  static two_float name(context c, const two_float *v) { \
    ir *b = c->b; \
    if (!is_fast(b)) return to_narrow(b, accurate); \
    ir_value x = v[0].hi; \
    return two_float_f32(value); \
  }

static ir_value times(ir *b, ir_value x, double factor) { return mul(b, x, ir_float(b, b->f32, factor)); }
static ir_value fast_power(ir *b, ir_value x) { return ir_intrinsic(b, b->gpu->exp2, b->f32, 1, &x); }
static ir_value fast_log2(ir *b, ir_value x) { return ir_intrinsic(b, b->gpu->log2, b->f32, 1, &x); }
static ir_value fast_reciprocal(ir *b, ir_value x) { return ir_intrinsic(b, b->gpu->reciprocal, b->f32, 1, &x); }
static ir_value fast_root(ir *b, ir_value x) { return ir_intrinsic(b, b->gpu->root, b->f32, 1, &x); }

/* 1 - 2 / (1 + e^(2x)) has an error of 2^-22 of 1; near 0, where that is much of x, its series up to x^7. */
static ir_value fast_tanh(ir *b, ir_value x) {
  static const double series[] = {-17.0 / 315, 2.0 / 15, -1.0 / 3};
  ir_value one = ir_float(b, b->f32, 1), square = mul(b, x, x), sum = ir_float(b, b->f32, series[0]);
  for (int i = 1; i < 3; i++) sum = ir_fma(b, sum, square, ir_float(b, b->f32, series[i]));
  ir_value near = ir_fma(b, mul(b, sum, square), x, x), power = fast_power(b, times(b, x, 2 * 1.44269504088896340736));
  ir_value far = ir_fma(b, ir_float(b, b->f32, -2), fast_reciprocal(b, add(b, power, one)), one);
  ir_value is_near = ir_compare_float(b, "olt", ir_op1(b, "math.absf", x), ir_float(b, b->f32, 0.2));
  return ir_select(b, is_near, near, far);
}

static ir_value fast_decay(ir *b, ir_value x) {
  return fast_power(b, times(b, minus_size(b, x), 1.44269504088896340736));
}
static ir_value fast_log_of_1_and(ir *b, ir_value x) {
  return times(b, fast_log2(b, add(b, x, ir_float(b, b->f32, 1))), 0.69314718055994530942);
}
static ir_value fast_sigmoid_of(ir *b, ir_value x) {
  ir_value decay = fast_decay(b, x), one = ir_float(b, b->f32, 1);
  ir_value inverse = fast_reciprocal(b, add(b, one, decay));
  return ir_select(b, below_0(b, x), mul(b, decay, inverse), inverse);
}

FAST(fast_exp, two_exp(c, v), fast_power(b, times(b, x, 1.44269504088896340736)))
FAST(fast_log, two_log(c, v), times(b, fast_log2(b, x), 0.69314718055994530942))
FAST(fast_log1p, two_log1p(c, v), fast_log_of_1_and(b, x))
FAST(fast_tanh_of, two_tanh(c, v), fast_tanh(b, x))
FAST(fast_sqrt, two_sqrt(c, v), fast_root(b, x))
FAST(fast_div, two_div(c, v), mul(b, x, fast_reciprocal(b, v[1].hi)))

static two_float fast_sigmoid(context c, const two_float *v) {
  if (!is_fast(c->b)) return to_narrow(c->b, two_sigmoid(c, v));
  return two_float_f32(fast_sigmoid_of(c->b, v[0].hi));
}
static two_float fast_softplus(context c, const two_float *v) {
  if (!is_fast(c->b)) return to_narrow(c->b, two_softplus(c, v));
  ir_value decay = fast_decay(c->b, v[0].hi);
  return two_float_f32(softplus_of(c->b, v[0].hi, fast_log_of_1_and(c->b, decay)));
}

static const arithmetic FAST32 = {.operation = {ONE_CYCLE, [EXPR_EXP] = fast_exp, [EXPR_LOG] = fast_log,
                                                [EXPR_LOG1P] = fast_log1p, [EXPR_TANH] = fast_tanh_of,
                                                [EXPR_SIGMOID] = fast_sigmoid, [EXPR_SOFTPLUS] = fast_softplus,
                                                [EXPR_DIV] = fast_div, [EXPR_SQRT] = fast_sqrt},
                                  ONE_CHOICES(constant_f32, to_narrow)};

/* ---- two-float numbers for what is rounded after a sine with an error of 2^-20: rotations of 16-bit rows ----
 *
 * Phases keep some 2^-44 of their size; quotients and roots come from a fast one and a step that mends it. */

static two_float fast_turn(ir *b, two_float x, bool is_cosine) {
  const char *name = b->gpu ? (is_cosine ? b->gpu->cosine : b->gpu->sine) : NULL;
  if (!name) return two_float_f32(is_cosine ? two_float_cosq(b, x) : two_float_sinq(b, x));
  ir_value rounder = ir_float(b, b->f32, 0x1.8p23);
  ir_value turns = sub(b, ir_fma(b, x.hi, ir_float(b, b->f32, 0.25), rounder), rounder);
  ir_value angle = ir_fma(b, turns, ir_float(b, b->f32, -4), x.hi);
  if (x.lo.ptr) angle = add(b, angle, x.lo);
  angle = times(b, angle, 1.57079632679489661923);
  return two_float_f32(ir_intrinsic(b, name, b->f32, 1, &angle));
}
OPERATION(mended_sinq, fast_turn(b, v[0], false))
OPERATION(mended_cosq, fast_turn(b, v[0], true))

static two_float mended_sqrt(context c, const two_float *v) {
  ir *b = c->b;
  if (!is_fast(b)) return two_sqrt(c, v);
  ir_value x = v[0].hi, root = fast_root(b, x), rest = ir_fma(b, ir_op1(b, "arith.negf", root), root, x);
  if (v[0].lo.ptr) rest = add(b, rest, v[0].lo);
  ir_value zero = ir_float(b, b->f32, 0), none = ir_compare_float(b, "oeq", root, zero);
  ir_value mended = mul(b, rest, times(b, fast_reciprocal(b, root), 0.5));
  return (two_float){.hi = root, .lo = ir_select(b, none, zero, mended), .is_loose = true};
}

static two_float mended_div(context c, const two_float *v) {
  ir *b = c->b;
  if (!is_fast(b)) return two_div(c, v);
  ir_value inverse = fast_reciprocal(b, v[1].hi), quotient = mul(b, v[0].hi, inverse),
           less = ir_op1(b, "arith.negf", quotient), rest = ir_fma(b, less, v[1].hi, v[0].hi);
  if (v[0].lo.ptr) rest = add(b, rest, v[0].lo);
  if (v[1].lo.ptr) rest = ir_fma(b, less, v[1].lo, rest);
  return (two_float){.hi = quotient, .lo = mul(b, rest, inverse), .is_loose = true};
}

/* The sum with 0 is not loose. */
OPERATION(mended_floor, two_float_floor(b, two_float_add(b, v[0], two_float_const(b, 0))))

static const arithmetic TWO_FLOAT_TURNING = {.operation = {TWO_FLOAT_OPERATIONS(loose, mended)}, TWO_FLOAT_CHOICES};

/* ---- machines ---- */

const expr_machine expr_of_processors = {.narrow = &FLOAT32, .wide = &FLOAT64, .turned = &FLOAT64, .has_idioms = true};
const expr_machine expr_of_threads = {
    .narrow = &FLOAT32_OF_TWO, .wide = &TWO_FLOAT, .turned = &TWO_FLOAT_LOOSE, .compares_wide = true};
const expr_machine expr_of_turning_threads = {
    .narrow = &FAST32, .wide = &TWO_FLOAT_TURNING, .turned = &TWO_FLOAT_TURNING, .compares_wide = true};
const expr_machine expr_of_fast_threads = {
    .narrow = &FAST32, .wide = &TWO_FLOAT, .turned = &TWO_FLOAT_LOOSE, .compares_wide = true};
