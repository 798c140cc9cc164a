/* algebra/exponential: numbers of the exponential of skew matrices by scaling and squaring, the same for every target.
 *
 * The scheme is told in cpu/exponential.h.
 */
#pragma once

#include <stdbool.h>

/* What norms are scaled to. float32: 2.25^16 / 16! is 2^-25.5. float64: truncation that 9 squarings double must
 * stay under 2^-24: 1.4^16 / 16! is 2^-36. */
#define EXPONENTIAL_REACH_F32 2.25
#define EXPONENTIAL_REACH_F64 1.4

/* Products of b^3 multiplications that one exponential takes, symmetric ones counted as half, for --emit expr. */
double exponential_products(double norm, bool is_f64);

/* 1/(2k)! and 1/(2k+1)!, k = 0..7. */
extern const double exponential_even[8], exponential_odd[8];
