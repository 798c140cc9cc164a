/* base/number: the number types of tensors, stored and loaded one value at a time, and random numbers.
 *
 * Slow and sure code for check and the tests: rounds to nearest even from long double by
 * the definition of the format, subnormals and overflow included, and shares nothing with kernels.
 */
#pragma once

#include "kernel/number_types.h"

#include <stdbool.h>

typedef enum number_type {
#define X(name, ...) NUMBER_##name,
  PEGEN_NUMBER_TYPES(X)
#undef X
      NUMBER_TYPE_COUNT
} number_type;

/* The first ones are those of q and k; after them, up to NUMBER_OUT_TYPES, those that outputs alone may have. */
enum { NUMBER_CHANNEL_TYPES = PEGEN_ROW_TYPES, NUMBER_OUT_TYPES = PEGEN_OUT_TYPES };

typedef struct number_info {
  const char *name;  /* "bf16" */
  const char *words; /* "bfloat16" */
  const char *constant; /* "BF16" */
  DLDataType dl;
  unsigned dtype; /* PEGEN_DTYPE_ bit, or 0 */
  bool saturates;
  int bytes, digits, low, high, top;
} number_info;

const number_info *number_type_info(number_type type);
number_type number_type_of(DLDataType type);
/* Name and bytes of a type that emitters hold as an int. */
const char *number_name(int type);
int number_bytes(int type);
/* Bit of pegen_kernel.dtypes of rows of one type written as another, or as the same. */
unsigned number_pair(int in, int out);
/* The bits of pairs of two types. */
unsigned number_all_pairs(void);
/* PEGEN_DTYPE_ bits of all types of rows. */
unsigned number_all_dtypes(void);

void number_store(number_type type, void *at, long double value);
double number_load(number_type type, const void *at); /* int64 beyond 2^53 rounds */
double number_round(number_type type, long double value);
/* Half the distance between neighbours of the format where value lies. */
long double number_half_ulp(number_type type, long double value);

/* The least positive number of the format that has all digits. */
long double number_least_normal(number_type type);

/* splitmix64. */
uint64_t random_next(uint64_t *state);
double random_uniform(uint64_t *state, double low, double high);
/* A normal number of mean 0 and deviation 1, by Box and Muller's way from two uniform numbers. */
double random_normal(uint64_t *state);
int random_below(uint64_t *state, int bound);

/* A set of number types. */
#define NUMBER_BIT(type) (1u << (type))

/* For qsort of doubles: ascending. */
int number_compare(const void *x, const void *y);
