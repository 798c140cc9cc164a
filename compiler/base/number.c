/* base/number: number types and random numbers; see base/number.h. */
#include "base/number.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const number_info INFO[NUMBER_TYPE_COUNT] = {
#define X(name, text, words, code, bits, dtype, shift, operand, position, digits, low, high, top) \
  {text, words, #name, {code, bits, 1}, dtype, shift > 0, bits / 8, digits, low, high, top},
    PEGEN_NUMBER_TYPES(X)
#undef X
};

/* The emitters ask for a type of rows by `dtypes & 1u << type`. */
#define X(name, text, words, code, bits, dtype, ...) \
  static_assert((dtype) == 0 || (dtype) == 1u << PEGEN_NUMBER_##name, #name ": its bit is not that of its row");
PEGEN_NUMBER_TYPES(X)
#undef X

const number_info *number_type_info(number_type type) { return &INFO[type]; }

number_type number_type_of(DLDataType type) { return (number_type)pegen_number_of(type); }
const char *number_name(int type) { return INFO[type].name; }
int number_bytes(int type) { return INFO[type].bytes; }

unsigned number_pair(int in, int out) { return in == out ? INFO[in].dtype : pegen_number_pair(in, out); }

unsigned number_all_pairs(void) {
  unsigned all = 0;
  for (int in = 0; in < NUMBER_CHANNEL_TYPES; in++)
    for (int out = NUMBER_CHANNEL_TYPES; out < NUMBER_OUT_TYPES; out++) all |= number_pair(in, out);
  return all;
}

unsigned number_all_dtypes(void) {
  unsigned all = 0;
  for (int i = 0; i < NUMBER_CHANNEL_TYPES; i++) all |= INFO[i].dtype;
  return all;
}

/* Distance of neighbours as an exponent of two. */
static int ulp_exponent(number_type type, long double value) {
  const number_info *info = &INFO[type];
  int exponent = 0;
  frexpl(value, &exponent);
  exponent--; /* value = 1.m * 2^exponent */
  if (value == 0 || exponent < info->low) exponent = info->low;
  return exponent - info->digits + 1;
}

long double number_half_ulp(number_type type, long double value) {
  if (!isfinite(value)) return 0;
  return ldexpl(1, ulp_exponent(type, value) - 1);
}

long double number_least_normal(number_type type) { return ldexpl(1, INFO[type].low); }

/* 2^exponent, of a normal float64. */
static double power_of_two(int exponent) {
  uint64_t bits = (uint64_t)(exponent + 1023) << 52;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The magnitude behind a code without its sign, by the definition of the format. */
static double magnitude_of(const number_info *info, unsigned code) {
  int fraction_bits = info->digits - 1;
  unsigned fraction = code & ((1u << fraction_bits) - 1), biased = code >> fraction_bits;
  return biased == 0 ? fraction * power_of_two(info->low - fraction_bits)
                     : (fraction | 1u << fraction_bits) * power_of_two((int)biased - 1 + info->low - fraction_bits);
}

/* Codes of a format of 8 or 16 bits: those of magnitudes, of the largest finite one, of the one above it, and of NaN.
 */
static unsigned magnitudes(const number_info *info) { return 1u << (info->bytes * 8 - 1); }
static unsigned largest_code(const number_info *info) { return magnitudes(info) - 1 - (unsigned)info->top; }
static bool has_infinity(const number_info *info) { return info->top > 1; }

/* Nearest even in the floating-point format; beyond the largest number infinity, or the largest number. */
static long double round_float(number_type type, long double value) {
  const number_info *info = &INFO[type];
  if (isnan(value)) return value;
  long double largest = magnitude_of(info, largest_code(info)), rounded = value;
  int ulp = isinf(value) ? 0 : ulp_exponent(type, value);
  /* rintl rounds to nearest even in the default mode; scaling by powers of two is exact. */
  if (!isinf(value)) rounded = ldexpl(rintl(ldexpl(value, -ulp)), ulp);
  if (fabsl(rounded) > largest) rounded = copysignl(info->saturates ? largest : INFINITY, value);
  return rounded;
}

/* The formats of 8 and 16 bits, from a value that is already of the format. A NaN that saturates is all ones. */
static unsigned encode_narrow(number_type type, long double value) {
  const number_info *info = &INFO[type];
  int fraction_bits = info->digits - 1, exponent;
  unsigned sign = signbit(value) ? magnitudes(info) : 0, infinity = largest_code(info) + 1;
  if (isnan(value)) return info->saturates ? magnitudes(info) - 1 : sign | infinity | 1u << (fraction_bits - 1);
  if (isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  frexpl(value, &exponent);
  exponent--;
  bool subnormal = exponent < info->low;
  if (subnormal) exponent = info->low;
  unsigned digits = (unsigned)ldexpl(fabsl(value), fraction_bits - exponent);
  unsigned biased = subnormal ? 0 : (unsigned)(exponent - info->low + 1);
  return sign | biased << fraction_bits | (digits & ((1u << fraction_bits) - 1));
}

/* Does what the two above do for numbers that are neither subnormal nor too large: nearly all numbers, in a fourth of
 * the time. False: it is one of the others, or has digits beyond float64's. */
static bool encode_normal(const number_info *info, long double value, unsigned *bits) {
  double narrow = (double)value;
  uint64_t all, one = 1;
  memcpy(&all, &narrow, sizeof all);
  int fraction_bits = info->digits - 1, shift = 52 - fraction_bits, exponent = (int)(all >> 52 & 0x7ff) - 1023;
  if (narrow != value || exponent < info->low || exponent > info->high) return false;
  uint64_t magnitude = all << 1 >> 1, odd = magnitude >> shift & 1;
  uint64_t code =
      (magnitude + (one << (shift - 1)) - 1 + odd) >> shift; /* to nearest even; a carry is the exponent's */
  code -= (uint64_t)(info->low - 1 + 1023) << fraction_bits;
  *bits = (unsigned)code | (all >> 63 ? magnitudes(info) : 0);
  return code <= largest_code(info);
}

static double decode_narrow(number_type type, unsigned bits) {
  const number_info *info = &INFO[type];
  unsigned code = bits & (magnitudes(info) - 1);
  double magnitude = code <= largest_code(info)                             ? magnitude_of(info, code)
                     : has_infinity(info) && code == largest_code(info) + 1 ? INFINITY
                                                                            : NAN;
  return bits & magnitudes(info) ? -magnitude : magnitude;
}

/* Rounded towards 0, kept inside; of NaN 0. */
static int64_t whole_of(long double value, int64_t least, int64_t most) {
  if (value >= (long double)most) return most;
  return value > (long double)least ? (int64_t)value : isnan(value) ? 0 : least;
}

void number_store(number_type type, void *at, long double value) {
  switch (type) {
  case NUMBER_F64: memcpy(at, &(double){(double)value}, 8); break;
  case NUMBER_F32: memcpy(at, &(float){(float)value}, 4); break;
  case NUMBER_I32: memcpy(at, &(int32_t){(int32_t)whole_of(value, INT32_MIN, INT32_MAX)}, 4); break;
  case NUMBER_I64: memcpy(at, &(int64_t){whole_of(value, INT64_MIN, INT64_MAX)}, 8); break;
  default: {
    unsigned bits;
    if (!encode_normal(&INFO[type], value, &bits)) bits = encode_narrow(type, round_float(type, value));
    if (INFO[type].bytes == 1) memcpy(at, &(uint8_t){(uint8_t)bits}, 1);
    else memcpy(at, &(uint16_t){(uint16_t)bits}, 2);
  }
  }
}

double number_load(number_type type, const void *at) {
  union {
    double f64;
    float f32;
    int32_t i32;
    int64_t i64;
    uint16_t half;
    uint8_t byte;
  } bits = {0};
  memcpy(&bits, at, (size_t)INFO[type].bytes);
  switch (type) {
  case NUMBER_F64: return bits.f64;
  case NUMBER_F32: return bits.f32;
  case NUMBER_I32: return bits.i32;
  case NUMBER_I64: return (double)bits.i64;
  default: return decode_narrow(type, INFO[type].bytes == 1 ? bits.byte : bits.half);
  }
}

double number_round(number_type type, long double value) {
  char bytes[8];
  number_store(type, bytes, value);
  return number_load(type, bytes);
}

uint64_t random_next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

double random_uniform(uint64_t *state, double low, double high) {
  return low + (high - low) * (double)(random_next(state) >> 11) * 0x1p-53;
}

double random_normal(uint64_t *state) {
  double size = sqrt(-2 * log(1 - random_uniform(state, 0, 1)));
  return size * cos(2 * M_PI * random_uniform(state, 0, 1));
}

int random_below(uint64_t *state, int bound) { return (int)(random_next(state) % (uint64_t)bound); }

int number_compare(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}
