/* base/number: the number types of tensors, stored and loaded one value at a time, and random numbers.
 *
 * Slow and sure code for check and the tests: rounds to nearest even from long double by
 * the definition of the format, subnormals and overflow included, and shares nothing with kernels.
 */
#ifndef PEGEN_BASE_NUMBER_H
#define PEGEN_BASE_NUMBER_H

#include <dlpack/dlpack.h>
#include <stdint.h>

/* name, DLPack type and bits, PEGEN_DTYPE_ bit, mantissa bits (with the hidden one), smallest
 * normal exponent, largest exponent.                              ORDER NUMBER_TYPE */
#define NUMBER_TYPES(X) \
  X(F32, "f32", kDLFloat, 32, 1, 24, -126, 127) \
  X(BF16, "bf16", kDLBfloat, 16, 2, 8, -126, 127) \
  X(F16, "f16", kDLFloat, 16, 4, 11, -14, 15) \
  X(F64, "f64", kDLFloat, 64, 0, 53, -1022, 1023) \
  X(I32, "i32", kDLInt, 32, 0, 32, 0, 31) \
  X(I64, "i64", kDLInt, 64, 0, 64, 0, 63)

typedef enum number_type {
#define X(name, text, code, bits, flag, mantissa, low, high) NUMBER_##name,
  NUMBER_TYPES(X)
#undef X
      NUMBER_TYPE_COUNT
} number_type;

enum { NUMBER_CHANNEL_TYPES = NUMBER_F16 + 1 }; /* the first ones are those of q and k */

typedef struct number_info {
  const char *name;
  DLDataType dl;
  unsigned dtype; /* PEGEN_DTYPE_ bit, or 0 */
  int bytes, mantissa, low, high;
} number_info;

const number_info *number_type_info(number_type type);
number_type number_type_of(DLDataType type);

void number_store(number_type type, void *at, long double value);
double number_load(number_type type, const void *at); /* int64 beyond 2^53 rounds */
double number_round(number_type type, long double value);
/* Half the distance between neighbours of the format where value lies. */
long double number_half_ulp(number_type type, long double value);

/* splitmix64. */
uint64_t random_next(uint64_t *state);
double random_uniform(uint64_t *state, double low, double high);
int random_below(uint64_t *state, int bound);

#endif
