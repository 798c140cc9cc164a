/* number_types.h: the one table of number types, for the compiler, for the driver inside every object and for the
 * runtime. docs/architecture.md says what a new one takes.
 *
 *   name      of enumerators: PEGEN_NUMBER_F32, NUMBER_F32
 *   text      of --dtype, of symbols and of PTX entries
 *   words     of texts for readers
 *   code      DLPack's type code, bits its size
 *   dtype     bit of pegen_kernel.dtypes: rows of q, k and v may be read as it and written so; 0: they may not
 *   operand   its number among PEGEN_PTX_OPERAND_TYPE: operands may be of it; -1: they may not
 *   position  pegen_position_type: positions may be of it; -1: they may not
 *   digits    binary digits of the significand, the hidden one counted
 *   low, high least and greatest exponent of normal numbers
 *
 * Types of rows come first. How a machine converts them stands in compiler/mlir/number.c, and the slow and sure
 * conversion of check and tests, by the last three columns, in compiler/base/number.c.
 */
#ifndef PEGEN_KERNEL_NUMBER_TYPES_H
#define PEGEN_KERNEL_NUMBER_TYPES_H

#include "pegen/pegen.h"

/* X(name, text, words, code, bits, dtype, operand, position, digits, low, high) */
#define PEGEN_NUMBER_TYPES(X) \
  X(F32, "f32", "float32", kDLFloat, 32, PEGEN_DTYPE_F32, 0, 0, 24, -126, 127) \
  X(BF16, "bf16", "bfloat16", kDLBfloat, 16, PEGEN_DTYPE_BF16, 3, -1, 8, -126, 127) \
  X(F16, "f16", "float16", kDLFloat, 16, PEGEN_DTYPE_F16, 2, -1, 11, -14, 15) \
  X(F64, "f64", "float64", kDLFloat, 64, 0, 1, 1, 53, -1022, 1023) \
  X(I32, "i32", "int32", kDLInt, 32, 0, -1, 2, 32, 0, 31) \
  X(I64, "i64", "int64", kDLInt, 64, 0, -1, 3, 64, 0, 63)

/* How many there are, and how many of them are types of rows. */
enum {
#define PEGEN_NUMBER_ENUM(name, ...) PEGEN_NUMBER_##name,
  PEGEN_NUMBER_TYPES(PEGEN_NUMBER_ENUM)
#undef PEGEN_NUMBER_ENUM
      PEGEN_NUMBER_COUNT,
#define PEGEN_NUMBER_ONE(name, text, words, code, bits, dtype, ...) +(dtype != 0)
  PEGEN_ROW_TYPES = 0 PEGEN_NUMBER_TYPES(PEGEN_NUMBER_ONE)
#undef PEGEN_NUMBER_ONE
};

/* What programs that run kernels need of a row. */
typedef struct pegen_number {
  int32_t code, bits;
  uint32_t dtype;
  int32_t operand, position;
} pegen_number;

/* Row i of the table. */
static inline const pegen_number *pegen_number_at(int64_t i) {
  static const pegen_number rows[] = {
#define PEGEN_NUMBER_ROW(name, text, words, code, bits, dtype, operand, position, ...) \
  {code, bits, dtype, operand, position},
      PEGEN_NUMBER_TYPES(PEGEN_NUMBER_ROW)
#undef PEGEN_NUMBER_ROW
  };
  return &rows[i];
}

/* PEGEN_NUMBER_ of a tensor's elements; PEGEN_NUMBER_COUNT: none of them. */
static inline int64_t pegen_number_of(DLDataType type) {
  int64_t i = 0;
  while (i < PEGEN_NUMBER_COUNT && (pegen_number_at(i)->code != type.code || pegen_number_at(i)->bits != type.bits))
    i++;
  return type.lanes == 1 ? i : PEGEN_NUMBER_COUNT;
}

/* 1: operands may be of that type. */
static inline int pegen_number_is_operand(DLDataType type) {
  int64_t i = pegen_number_of(type);
  return i < PEGEN_NUMBER_COUNT && pegen_number_at(i)->operand >= 0;
}

/* ---- operands' elements, as float64 ---- */

static inline double pegen_bf16_load(uint16_t bits) {
  union {
    uint32_t bits;
    float value;
  } u;
  u.bits = (uint32_t)bits << 16;
  return u.value;
}

/* By hand: the baseline has no instruction for it, and the compiler's own is a library call. */
static inline double pegen_f16_load(uint16_t bits) {
  union {
    uint64_t bits;
    double value;
  } u;
  uint64_t sign = (uint64_t)(bits >> 15) << 63, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 0) {
    double value = (double)(int64_t)fraction * 0x1p-24;
    return sign ? -value : value;
  }
  u.bits = sign | (exponent == 31 ? 0x7ff : exponent - 15 + 1023) << 52 | fraction << 42;
  return u.value;
}

#endif
