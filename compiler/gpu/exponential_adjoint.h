/* gpu/exponential_adjoint: what M gains of the torque of y = exp(-M) x, by a team of threads (gpu/exponential).
 *
 * The formulas are algebra/torque_dense's, of -M. With E_j = exp(M / 2^j) the torque goes through
 *
 *     tau <- 1/2 (tau + E_j tau E_j^T)      for every squaring, from the smallest E on, ahead of it
 *     tau <- a series in ad of M / 2^count  first of all: all of them commute
 *
 * Two products a squaring and one a commutator beside those of the exponential, whose squares it shares. Tiles that
 * wait for their turn lie in global memory that is the thread's own, for there are more than registers: lane by lane,
 * so that neighbours share sectors.
 */
#pragma once

#include "gpu/exponential.h"

/* The torque, and what the squarings need. */
enum { TORQUE_TILE, TORQUE_POWER, TORQUE_TILES, TORQUE_THREAD_BYTES = TORQUE_TILES * TEAM_TILE * 4 };

typedef struct team_torque {
  matrix_team *team;
  ir_value memory; /* pointer: of the team, threads * TORQUE_THREAD_BYTES */
  ir_value wanted; /* i1, of the block: the exponential takes the torque along */
} team_torque;

/* The torque's tile in memory; element: i32, of the tile. */
void team_torque_store(team_torque *t, const ir_value *tile);
ir_value team_torque_element(team_torque *t, ir_value element);

/* The sums of g_i y_j become the torque: less their transposes. Both matrices are free, here and after. */
void team_torque_skew(team_torque *t);
/* The sums of g_i x_j of y = factor exp(-M) x become those of g_i y_j. The left matrix is the transpose of exp(M),
 * complete; then both are free. */
void team_torque_turn(team_torque *t, double factor);
/* team_exponential; where it is wanted, the torque becomes what -M gains. */
void team_torque_exponential(team_torque *t);
