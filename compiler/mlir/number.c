/* mlir/number: one row a number type; see mlir/number.h. */
#include "mlir/number.h"

#include "mlir/math.h"

enum { WORD_BITS = 32 };

/* How a type of fewer bits than float32 is converted. */
typedef struct number_conversion {
  MlirType (*type)(const ir *b);                   /* MLIR's own, for targets that convert it */
  ir_value (*to_f32)(ir *b, ir_value bits);        /* by integer arithmetic, from integers of its size */
  ir_value (*from_f32)(ir *b, ir_value x);
  bool is_upper_half;                              /* of a float32: no target needs an instruction to read it */
} number_conversion;

static MlirType bf16(const ir *b) { return b->bf16; }
static MlirType f16(const ir *b) { return b->f16; }

static const number_conversion conversions[NUMBER_CHANNEL_TYPES] = {
    [NUMBER_BF16] = {bf16, math_f32_from_bf16, math_bf16_from_f32, .is_upper_half = true},
    [NUMBER_F16] = {f16, math_f32_from_f16, math_f16_from_f32, .is_upper_half = false},
};

MlirType number_bits(ir *b, int type) {
  int bytes = number_bytes(type);
  return bytes == 4 ? b->i32 : bytes == 2 ? b->i16 : b->i8;
}

static bool reads_natively(unsigned native, int type) {
  return native & NUMBER_BIT(type) && !conversions[type].is_upper_half;
}

/* ---- vectors, as processors have them ---- */

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

ir_value emit_rounded(ir *b, unsigned native, int type, ir_value v) {
  return widened(b, native, type, narrowed(b, native, type, v));
}

/* ---- registers, as GPUs have them ---- */

ir_value emit_number_bits(ir *b, unsigned native, int type, ir_value x) {
  ir_value v = narrowed(b, native, type, x);
  return type != NUMBER_F32 && native & NUMBER_BIT(type) ? ir_cast(b, "arith.bitcast", v, number_bits(b, type)) : v;
}

ir_value emit_number_value(ir *b, unsigned native, int type, ir_value bits) {
  if (!reads_natively(native, type)) return widened(b, native, type, bits);
  return widened(b, native, type, ir_cast(b, "arith.bitcast", bits, conversions[type].type(b)));
}

static ir_value i32(ir *b, int64_t value) { return ir_int(b, b->i32, value); }

/* The upper half of a word, and the lower one moved up, are float32 without more ado. */
static void unpack_upper_halves(ir *b, ir_value word, ir_value *x) {
  x[0] = ir_cast(b, "arith.bitcast", ir_op2(b, "arith.shli", word, i32(b, 16)), b->f32);
  x[1] = ir_cast(b, "arith.bitcast", ir_op2(b, "arith.andi", word, i32(b, 0xffff0000ll)), b->f32);
}

void emit_unpack_word(ir *b, unsigned native, int type, ir_value word, ir_value *x) {
  int count = 4 / number_bytes(type);
  if (conversions[type].is_upper_half) {
    unpack_upper_halves(b, word, x);
    return;
  }
  ir_value single = ir_elements(b, ir_vector(b, 1, b->i32), 1, &word),
           all = ir_bitcast_lanes(b, single, ir_vector(b, count, stored_type(b, native, type)));
  all = widened(b, native, type, all);
  for (int i = 0; i < count; i++) x[i] = ir_extract(b, all, i);
}

ir_value emit_pack_word(ir *b, unsigned native, int type, const ir_value *x) {
  int count = 4 / number_bytes(type), bits = WORD_BITS / count;
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
