/* number_types.h: the one table of number types, for the compiler, for the driver inside every object and for the
 * runtime. docs/recipes.md says what a new one takes.
 *
 *   name      of enumerators: PEGEN_NUMBER_F32, NUMBER_F32
 *   text      of --dtype, of symbols and of PTX entries
 *   words     of texts for readers
 *   code      DLPack's type code, bits its size
 *   dtype     bit of pegen_kernel.dtypes: rows of q, k and v may be read as it and written so; 0: they may not
 *   shift     rows of another type may be written as it, and the pair's bit is the other's, moved up by so many; 0:
 * they may not. Such a type saturates, and its outputs have a scale operand   its number among PEGEN_PTX_OPERAND_TYPE:
 * operands may be of it; -1: they may not position  pegen_position_type: positions may be of it; -1: they may not
 *   digits    binary digits of the significand, the hidden one counted
 *   low, high least and greatest exponent of normal numbers
 *   top       codes above the largest finite magnitude, infinity among them where there is any
 *
 * Types of rows come first, then those of outputs alone. How a machine converts them stands in compiler/mlir/number.c,
 * and the slow and sure conversion of check and tests, by the last four columns, in compiler/base/number.c.
 */
#pragma once

#include "pegen/pegen.h"

/* X(name, text, words, code, bits, dtype, shift, operand, position, digits, low, high, top) */
#define PEGEN_NUMBER_TYPES(X) \
  X(F32, "f32", "float32", kDLFloat, 32, PEGEN_DTYPE_F32, 0, 0, 0, 24, -126, 127, 1 << 23) \
  X(BF16, "bf16", "bfloat16", kDLBfloat, 16, PEGEN_DTYPE_BF16, 0, 3, -1, 8, -126, 127, 1 << 7) \
  X(F16, "f16", "float16", kDLFloat, 16, PEGEN_DTYPE_F16, 0, 2, -1, 11, -14, 15, 1 << 10) \
  X(F8E4M3, "f8e4m3", "float8_e4m3fn", PEGEN_DL_FLOAT8_E4M3FN, 8, 0, PEGEN_TO_F8E4M3, -1, -1, 4, -6, 8, 1) \
  X(F8E5M2, "f8e5m2", "float8_e5m2", PEGEN_DL_FLOAT8_E5M2, 8, 0, PEGEN_TO_F8E5M2, -1, -1, 3, -14, 15, 1 << 2) \
  X(F64, "f64", "float64", kDLFloat, 64, 0, 0, 1, 1, 53, -1022, 1023, 0) \
  X(I32, "i32", "int32", kDLInt, 32, 0, 0, -1, 2, 32, 0, 31, 0) \
  X(I64, "i64", "int64", kDLInt, 64, 0, 0, -1, 3, 64, 0, 63, 0)

/* How many there are, how many of them are types of rows, and those with the types of outputs alone that follow. */
enum {
#define PEGEN_NUMBER_ENUM(name, ...) PEGEN_NUMBER_##name,
  PEGEN_NUMBER_TYPES(PEGEN_NUMBER_ENUM)
#undef PEGEN_NUMBER_ENUM
      PEGEN_NUMBER_COUNT,
#define PEGEN_NUMBER_ONE(name, text, words, code, bits, dtype, ...) +(dtype != 0)
  PEGEN_ROW_TYPES = 0 PEGEN_NUMBER_TYPES(PEGEN_NUMBER_ONE),
#undef PEGEN_NUMBER_ONE
#define PEGEN_NUMBER_ONE(name, text, words, code, bits, dtype, shift, ...) +(dtype != 0 || shift != 0)
  PEGEN_OUT_TYPES = 0 PEGEN_NUMBER_TYPES(PEGEN_NUMBER_ONE)
#undef PEGEN_NUMBER_ONE
};

/* What programs that run kernels need of a row. */
typedef struct pegen_number {
  int32_t code, bits;
  uint32_t dtype;
  int32_t shift, operand, position;
  int32_t digits, low, top;
} pegen_number;

/* Row i of the table. */
static inline const pegen_number *pegen_number_at(int64_t i) {
  static const pegen_number rows[] = {
#define PEGEN_NUMBER_ROW(name, text, words, code, bits, dtype, shift, operand, position, digits, low, high, top) \
  {code, bits, dtype, shift, operand, position, digits, low, top},
      PEGEN_NUMBER_TYPES(PEGEN_NUMBER_ROW)
#undef PEGEN_NUMBER_ROW
  };
  return &rows[i];
}

/* PEGEN_NUMBER_ of a tensor's elements; PEGEN_NUMBER_COUNT: none of them. */
static __attribute__((noinline, unused)) int64_t pegen_number_of(DLDataType type) {
  switch (type.lanes == 1 ? type.code << 8 | type.bits : -1) {
#define PEGEN_NUMBER_CASE(name, text, words, code, bits, ...) \
  case code << 8 | bits: return PEGEN_NUMBER_##name;
    PEGEN_NUMBER_TYPES(PEGEN_NUMBER_CASE)
#undef PEGEN_NUMBER_CASE
  }
  return PEGEN_NUMBER_COUNT;
}

/* The bit of pegen_kernel.dtypes of rows of type `in` that are written as `out`. */
static inline uint32_t pegen_number_pair(int64_t in, int64_t out) {
  return pegen_number_at(in)->dtype << pegen_number_at(out)->shift;
}

/* 1: operands may be of that type. */
static inline int pegen_number_is_operand(DLDataType type) {
  int64_t i = pegen_number_of(type);
  return i < PEGEN_NUMBER_COUNT && pegen_number_at(i)->operand >= 0;
}

/* A float32 in a type of 8 bits that saturates, to nearest even; NaN is all ones. It rounds as emitted code does, for
 * the few rows that the driver moves itself. */
static inline uint8_t pegen_number_narrow(int64_t type, float value) {
  const pegen_number *of = pegen_number_at(type);
  union {
    float value;
    uint32_t bits;
  } u, least;
  int32_t fraction = of->digits - 1, shift = 23 - fraction;
  u.value = value;
  uint32_t sign = u.bits >> 24 & 0x80, magnitude = u.bits & 0x7fffffff, code, most = 0x7f - (uint32_t)of->top;
  if (magnitude > 0x7f800000) return 0x7f;
  if (magnitude >> 23 < (uint32_t)(of->low + 127)) { /* subnormal: a sum whose last place is the type's */
    least.bits = (uint32_t)(of->low - fraction + 23 + 127) << 23;
    u.bits = magnitude;
    u.value += least.value;
    code = u.bits - least.bits;
  } else {
    code = (magnitude + (1u << (shift - 1)) - 1 + (magnitude >> shift & 1)) >> shift;
    code -= (uint32_t)(of->low - 1 + 127) << fraction;
  }
  return (uint8_t)(sign | (code > most ? most : code));
}

/* ---- numbers of 16 bits, and operands' elements, as float64 ---- */

static inline float pegen_bf16_load(uint16_t bits) {
  union {
    uint32_t bits;
    float value;
  } u;
  u.bits = (uint32_t)bits << 16;
  return u.value;
}

/* By hand: the baseline has no instruction for it, and the compiler's own is a library call. It has no branch, so that
 * loops of it become vectors. */
static inline float pegen_f16_load(uint16_t bits) {
  union {
    uint32_t bits;
    float value;
  } u, subnormal;
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7fff, bias = (127 - 15) << 23;
  subnormal.value = (float)(int32_t)magnitude * 0x1p-24f;
  u.bits = (magnitude << 13) + bias + (magnitude < 0x7c00 ? 0 : bias);
  u.bits = (magnitude < 0x400 ? subnormal.bits : u.bits) | sign;
  return u.value;
}

/* A number of a type, which is PEGEN_NUMBER_F64, F32, F16, or else bfloat16. */
static inline __attribute__((always_inline)) double pegen_number_load(int64_t type, const char *at) {
  switch (type) {
  case PEGEN_NUMBER_F64: return *(const double *)(const void *)at;
  case PEGEN_NUMBER_F32: return *(const float *)(const void *)at;
  case PEGEN_NUMBER_F16: return pegen_f16_load(*(const uint16_t *)(const void *)at);
  default: return pegen_bf16_load(*(const uint16_t *)(const void *)at);
  }
}
