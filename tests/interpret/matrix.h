/* interpret/matrix: what matrices that are not made of expressions are, as the interpreter computes them.
 *
 * Long double; slow and obvious, and nothing of how targets compute them.
 */
#pragma once

#include "program/program.h"

/* What a source makes of a sum of skew matrices, [n][n] in place. angle: of a Schur form's planes. */
void matrix_make(program_source source, int n, long double angle, long double *m);
