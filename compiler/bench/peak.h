/* bench/peak: multiplications and additions a second that one thread of this processor does at most: of float32, or,
 * where it has them (target_wants_dots), by dot products of pairs of bfloat16. */
#pragma once

#include <stdbool.h>

double bench_peak_flops(bool dots);
