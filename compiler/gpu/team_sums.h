/* gpu/team_sums: what a team of threads (gpu/exponential) sums over rows, and keeps of it in shared memory.
 *
 * Matrices lie in the team's right matrix as rows do (gpu/team), so that lines of either direction may be turned in
 * place: row by row, without the changed places of quads that products are read by.
 */
#pragma once

#include "gpu/team.h"

/* The thread's tile of the sum over an item's rows of g_i y_j, y what was kept of them: a flight's in float32, those of
 * flights in pairs. The right matrix is free, here and after. */
void team_sum_rows(team_rows *r, row_thread *kept, const row_origin *origin, ir_value *sum);

/* The thread's tile of a matrix that lies as rows do; stored, it is complete but for a barrier. */
void team_store_lines(team_rows *r, const ir_value *tile);
void team_load_lines(team_rows *r, ir_value *tile);
