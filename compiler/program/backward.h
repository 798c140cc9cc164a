/* program/backward: gradients of rows, operands and positions as programs.
 *
 * Rows are those of the transposed program; beside them stand the torques, which their token's expressions take
 * (plan/gradient.h). By way of a table the same is two programs: one that ends at the torques, and one that begins
 * with those that many calls have added up.
 */
#pragma once

#include "plan/gradient.h"
#include "program/program.h"

typedef enum backward_way { BACKWARD_AT_ONCE, BACKWARD_TO_TABLE, BACKWARD_FROM_TABLE, BACKWARD_ROWS } backward_way;

/* From what was written (TORQUE_OF_Y) or read. Sums take TORQUE_OF_Y, at once. Each of several parts has arrays of its
 * own, of what its operands and its own axes gain. */
const program *backward_build_row(arena *a, const spec *s, const plan *const *plans, const plan_gradient_row *of,
                                  torque_frame frame, backward_way way);
/* Rows alone: the encode program transposed, or, where channels are mapped before they turn, one that reads what they
 * were, too. */
const program *backward_build_rows(arena *a, const program *encode);
const program *backward_build(arena *a, const plan *p, const plan_gradient *g, torque_frame frame, backward_way way);
