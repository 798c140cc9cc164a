/* spec/expr_facts: what can be read off an expression without evaluating it at chosen points.
 *
 * These are proofs: true means it holds for all positions and operands; false that it could
 * not be seen. explain builds its proved properties on them.
 */
#pragma once

#include "spec/expr.h"

/* Whether x is 0 in one block of one head whatever positions and operands are. */
bool expr_is_zero_in(const expr *x, int head, int block, int blocks);

/* Whether x is c0 + sum over axes of c_a r_a in the positions, the c free of positions. */
bool expr_is_affine(const expr *x);
/* Whether it is affine with c0 = 0: no phase at the origin. */
bool expr_is_linear(const expr *x);

/* Whether x reads a coordinate of indices first to end - 1: 0 to n_axes - 1 are the axes', and a score may read others
 * (SPEC_OF_SCORE and so on). */
bool expr_reads_places(const expr *x, int first, int end);

/* Whether x reads an element of an input. */
bool expr_reads_input(const expr *x, int input);

/* Sets operand_read[i] for every operand that x reads. */
void expr_mark_operands(const expr *x, bool *operand_read);
