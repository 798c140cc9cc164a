/* mlir/number: one row a number type; see mlir/number.h. */
#include "mlir/number.h"

#include "mlir/arith.h"
#include "mlir/math.h"

enum { WORD_BITS = 32 };

/* How a type of fewer bits than float32 is converted. */
typedef struct number_conversion {
  MlirType (*type)(const ir *b);                   /* MLIR's own, for targets that convert it */
  ir_value (*to_f32)(ir *b, ir_value bits);        /* by integer arithmetic, from integers of its size */
  ir_value (*from_f32)(ir *b, ir_value x);
  /* For a type that is a float32's upper half, which no target needs an instruction to read: i32 with it there. */
  ir_value (*above)(ir *b, ir_value x, bool nan_is_cut);
  const char *pair;                                /* i16 (f32 high, f32 low), where no MLIR type stands for it */
} number_conversion;

static MlirType bf16(const ir *b) { return b->bf16; }
static MlirType f16(const ir *b) { return b->f16; }

static ir_value like(ir *b, ir_value bits, int64_t value) { return ir_int(b, ir_type(bits), value); }

/* A type of 8 bits that saturates, of a float32's bits. Too large magnitudes, infinity among them, are cut first; then,
 * of normal results, the exponent is moved and bits are rounded to nearest even, where a carry runs into the exponent
 * as it should; and subnormal ones are a sum whose last place is that of the type. NaN is all ones, as NVIDIA's
 * instruction has it. */
static ir_value saturated(ir *b, const number_info *to, ir_value x) {
  int fraction = to->digits - 1, shift = 23 - fraction;
  int64_t least_bits = (int64_t)(to->low - fraction + 23 + 127) << 23, rebias = (int64_t)(to->low - 1 + 127)
                                                                                << fraction;
  int64_t largest = (127 - to->top + rebias) << shift;
  ir_value bits = ir_cast(b, "arith.bitcast", x, b->i32);
  ir_value sign = ir_op2(b, "arith.andi", ir_op2(b, "arith.shrui", bits, like(b, bits, 24)), like(b, bits, 0x80));
  ir_value magnitude = ir_op2(b, "arith.andi", bits, like(b, bits, 0x7fffffff));
  ir_value is_nan = ir_compare_int(b, "ugt", magnitude, like(b, bits, 0x7f800000));
  ir_value cut = ir_op2(b, "arith.minui", magnitude, like(b, bits, largest));
  ir_value odd = ir_op2(b, "arith.andi", ir_op2(b, "arith.shrui", cut, like(b, bits, shift)), like(b, bits, 1));
  ir_value rounded = add(b, add(b, cut, like(b, bits, (1ll << (shift - 1)) - 1)), odd);
  ir_value normal = sub(b, ir_op2(b, "arith.shrui", rounded, like(b, bits, shift)), like(b, bits, rebias));
  ir_value least = ir_cast(b, "arith.bitcast", like(b, bits, least_bits), b->f32);
  ir_value sum = add(b, ir_cast(b, "arith.bitcast", cut, b->f32), least);
  ir_value subnormal = sub(b, ir_cast(b, "arith.bitcast", sum, b->i32), like(b, bits, least_bits));
  ir_value is_small = ir_compare_int(b, "ult", cut, like(b, bits, (int64_t)(to->low + 127) << 23));
  ir_value code = ir_op2(b, "arith.ori", ir_select(b, is_small, subnormal, normal), sign);
  return ir_cast(b, "arith.trunci", ir_select(b, is_nan, like(b, bits, 0x7f), code), b->i8);
}

static ir_value f8e4m3(ir *b, ir_value x) { return saturated(b, number_type_info(NUMBER_F8E4M3), x); }
static ir_value f8e5m2(ir *b, ir_value x) { return saturated(b, number_type_info(NUMBER_F8E5M2), x); }

static const number_conversion conversions[NUMBER_OUT_TYPES] = {
    [NUMBER_BF16] = {bf16, math_f32_from_bf16, math_bf16_from_f32, .above = math_bf16_above_f32},
    [NUMBER_F16] = {f16, math_f32_from_f16, math_f16_from_f32},
    /* Outputs alone: nothing reads them. */
    [NUMBER_F8E4M3] = {.from_f32 = f8e4m3, .pair = "llvm.nvvm.ff.to.e4m3x2.rn"},
    [NUMBER_F8E5M2] = {.from_f32 = f8e5m2, .pair = "llvm.nvvm.ff.to.e5m2x2.rn"},
};

MlirType number_bits(ir *b, int type) {
  int bytes = number_bytes(type);
  return bytes == 4 ? b->i32 : bytes == 2 ? b->i16 : b->i8;
}

static bool reads_natively(unsigned native, int type) { return native & NUMBER_BIT(type) && !conversions[type].above; }

/* ---- vectors, as processors have them ---- */

/* The upper half of a word, and the lower one moved up, are float32 without more ado. */
void emit_unpack_pair(ir *b, ir_value word, ir_value *x) {
  x[0] = ir_cast(b, "arith.bitcast", ir_op2(b, "arith.shli", word, like(b, word, 16)), b->f32);
  x[1] = ir_cast(b, "arith.bitcast", ir_op2(b, "arith.andi", word, like(b, word, 0xffff0000ll)), b->f32);
}

/* What is loaded of a type: the type itself where the target reads it, else its bits. */
static MlirType stored_type(ir *b, unsigned native, int type) {
  if (type == NUMBER_F32) return b->f32;
  return reads_natively(native, type) ? conversions[type].type(b) : number_bits(b, type);
}

static ir_value widened(ir *b, unsigned native, int type, ir_value v) {
  if (type == NUMBER_F32) return v;
  return reads_natively(native, type) ? ir_cast(b, "arith.extf", v, b->f32) : conversions[type].to_f32(b, v);
}

/* The value as the type's own, or as its bits. */
static ir_value narrowed(ir *b, unsigned native, int type, ir_value v) {
  if (type == NUMBER_F32) return v;
  return native & NUMBER_BIT(type) ? ir_cast(b, "arith.truncf", v, conversions[type].type(b))
                                   : conversions[type].from_f32(b, v);
}

ir_value emit_load_channels(ir *b, unsigned native, int type, int width, ir_value at) {
  MlirType element = stored_type(b, native, type);
  return widened(b, native, type, ir_load(b, width ? ir_vector(b, width, element) : element, at, number_bytes(type)));
}

void emit_store_channels(ir *b, unsigned native, int type, ir_value v, ir_value at, bool streaming) {
  int bytes = number_bytes(type), lanes = ir_lanes(v) ? ir_lanes(v) : 1;
  ir_store(b, narrowed(b, native, type, v), at, streaming ? lanes * bytes : bytes, streaming);
}

static ir_value further(ir *b, int type, int width, ir_value at) {
  return ir_offset_const(b, at, (int64_t)width * number_bytes(type));
}

void emit_load_channel_pair(ir *b, unsigned native, int type, int width, ir_value at, ir_value *x) {
  if (conversions[type].above) {
    emit_unpack_pair(b, ir_load(b, ir_vector(b, width, b->i32), at, number_bytes(type)), x);
    return;
  }
  x[0] = emit_load_channels(b, native, type, width, at);
  x[1] = emit_load_channels(b, native, type, width, further(b, type, width, at));
}

bool number_takes_turns(int type) { return conversions[type].above != NULL; }

ir_value emit_taking_turns(ir *b, const ir_value *x, int odd) {
  int64_t mask[64];
  for (int i = 0; i < ir_lanes(x[0]); i++) mask[i] = 2 * i + odd;
  return ir_shuffle(b, x[0], x[1], ir_lanes(x[0]), mask);
}

ir_value emit_in_order(ir *b, const ir_value *x, int upper) {
  int64_t mask[64];
  int lanes = ir_lanes(x[0]);
  for (int i = 0; i < lanes; i++) mask[i] = (upper * lanes + i) / 2 + (i % 2 ? lanes : 0);
  return ir_shuffle(b, x[0], x[1], lanes, mask);
}

/* Words of two numbers, the first below the second. LLVM would see a shuffle of halves in it, which AVX-512 has as
 * three instructions where these are two: it does not look through the fence, which is none. */
static ir_value pack_upper_halves(ir *b, int type, const ir_value *x, bool nan_is_cut) {
  ir_value low = conversions[type].above(b, x[0], nan_is_cut), high = conversions[type].above(b, x[1], nan_is_cut);
  low = ir_cast(b, "arith.bitcast", ir_op2(b, "arith.shrui", low, like(b, low, 16)), b->f32);
  low = ir_cast(b, "arith.bitcast", ir_intrinsic(b, "llvm.arithmetic.fence", ir_type(low), 1, &low), b->i32);
  return ir_op2(b, "arith.ori", low, ir_op2(b, "arith.andi", high, like(b, high, 0xffff0000ll)));
}

enum { AVX512_LANES = 16 }; /* float32 in a register */

/* Words of two numbers by AVX-512's own rounding, which takes a subnormal number as 0, and a permutation. */
static ir_value pack_rounded(ir *b, const ir_value *x) {
  int64_t in_order[2 * AVX512_LANES];
  for (int i = 0; i < 2 * AVX512_LANES; i++) in_order[i] = i / 2 + i % 2 * AVX512_LANES;
  ir_value operands[] = {x[1], x[0]};
  ir_value both =
      ir_intrinsic(b, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", ir_vector(b, 2 * AVX512_LANES, b->bf16), 2, operands);
  return ir_shuffle(b, both, both, 2 * AVX512_LANES, in_order);
}

ir_value emit_pack_pair(ir *b, unsigned native, int type, const ir_value *x, bool nan_is_cut) {
  bool rounds = native & NUMBER_BIT(type);
  if (!number_takes_turns(type) || (rounds && ir_lanes(x[0]) != AVX512_LANES)) return (ir_value){NULL};
  return rounds ? pack_rounded(b, x) : pack_upper_halves(b, type, x, nan_is_cut);
}

void emit_store_channel_pair(ir *b, unsigned native, int type, const ir_value *x, ir_value at) {
  ir_value words = emit_pack_pair(b, native, type, x, false);
  if (words.ptr) {
    ir_store(b, words, at, number_bytes(type), false);
    return;
  }
  for (int half = 0; half < 2; half++) {
    ir_value to = half ? further(b, type, ir_lanes(x[0]), at) : at;
    ir_value v = number_takes_turns(type) ? emit_in_order(b, x, half) : x[half];
    emit_store_channels(b, native, type, v, to, false);
  }
}

ir_value emit_rounded(ir *b, unsigned native, int type, ir_value v) {
  if (reads_natively(native, type)) return widened(b, native, type, narrowed(b, native, type, v));
  return emit_number_value(b, native, type, emit_number_bits(b, native, type, v));
}

/* ---- registers, as GPUs have them ---- */

/* Two numbers of 8 bits by an instruction that writes both. */
static ir_value packed_pair(ir *b, int type, ir_value low, ir_value high) {
  ir_value both[] = {high, low}; /* the first operand is the upper half */
  return ir_intrinsic(b, conversions[type].pair, b->i16, 2, both);
}

ir_value emit_number_bits(ir *b, unsigned native, int type, ir_value x) {
  if (native & NUMBER_BIT(type) && conversions[type].pair)
    return ir_cast(b, "arith.trunci", packed_pair(b, type, x, ir_float(b, b->f32, 0)), b->i8);
  ir_value v = narrowed(b, native, type, x);
  return type != NUMBER_F32 && native & NUMBER_BIT(type) ? ir_cast(b, "arith.bitcast", v, number_bits(b, type)) : v;
}

ir_value emit_number_value(ir *b, unsigned native, int type, ir_value bits) {
  if (!reads_natively(native, type)) return widened(b, native, type, bits);
  return widened(b, native, type, ir_cast(b, "arith.bitcast", bits, conversions[type].type(b)));
}

void emit_unpack_word(ir *b, unsigned native, int type, ir_value word, ir_value *x) {
  int count = 4 / number_bytes(type);
  if (conversions[type].above) {
    emit_unpack_pair(b, word, x);
    return;
  }
  ir_value single = ir_elements(b, ir_vector(b, 1, b->i32), 1, &word),
           all = ir_bitcast_lanes(b, single, ir_vector(b, count, stored_type(b, native, type)));
  all = widened(b, native, type, all);
  for (int i = 0; i < count; i++) x[i] = ir_extract(b, all, i);
}

ir_value emit_pack_word(ir *b, unsigned native, int type, const ir_value *x) {
  int count = 4 / number_bytes(type), bits = WORD_BITS / count;
  if (native & NUMBER_BIT(type) && conversions[type].pair) {
    ir_value low = ir_cast(b, "arith.extui", packed_pair(b, type, x[0], x[1]), b->i32),
             high = ir_cast(b, "arith.extui", packed_pair(b, type, x[2], x[3]), b->i32);
    return ir_op2(b, "arith.ori", low, ir_op2(b, "arith.shli", high, i32(b, 16)));
  }
  if (native & NUMBER_BIT(type)) {
    ir_value all = narrowed(b, native, type, ir_elements(b, ir_vector(b, count, b->f32), count, x));
    return ir_extract(b, ir_bitcast_lanes(b, all, ir_vector(b, 1, b->i32)), 0);
  }
  ir_value word = {NULL}, part[4];
  for (int i = 0; i < count; i++) part[i] = ir_cast(b, "arith.extui", emit_number_bits(b, native, type, x[i]), b->i32);
  for (int i = 0; i < count; i++)
    word = i ? ir_op2(b, "arith.ori", word, ir_op2(b, "arith.shli", part[i], i32(b, (int64_t)i * bits))) : part[0];
  return word;
}
