/* algebra/entire: entire functions of a bivector's square, of which exp, Ad and dexp are made. */
#pragma once

#include "spec/expr.h"

/* sin(t)/t, (1 - cos t)/t^2 and (t - sin t)/t^3 of the half angle's sine and cosine, one reduction; and sin(t)/t and
 * cos t of the whole angle: on GPUs sines have float32's digits, of which the others' products lose one. */
typedef struct entire_functions {
  const expr *sine, *cosine, *rest, *whole_sine, *whole_cosine;
} entire_functions;

/* Which squares there may be: of turns t^2 >= 0, of boosts t^2 <= 0, where the functions are the hyperbolic ones. */
typedef enum entire_range { ENTIRE_TURN, ENTIRE_BOOST, ENTIRE_EITHER } entire_range;

/* Functions of square = t^2: float64 where `wide`, else float32. */
entire_functions entire_functions_of(expr_pool *pool, const expr *square, entire_range range, bool wide);

/* Functions of an angle t >= 0. Its sines are those of the float64, all else is float32 unless wide. */
entire_functions entire_circular(expr_pool *pool, const expr *t, bool wide);

/* Functions of -t^2 = a + i b, a complex number: their real and imaginary parts, float64. */
typedef struct entire_pair {
  entire_functions real, dual;
} entire_pair;
entire_pair entire_of_complex(expr_pool *pool, const expr *a, const expr *b);
