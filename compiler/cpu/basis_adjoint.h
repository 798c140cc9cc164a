/* cpu/basis_adjoint: what a change of basis of the head and the turns behind it gain of the torque of a token's rows.
 *
 * The rows of y = R C x make G = sum of g y^T, g the gradient of y. Turns gain of its entries between channels of one
 * block, as rotors do of their rows' torques, and C of R^T G R^-T, the same of u = C x: sums over tokens, heads and
 * batches of which the Cayley transform's gradient is made once a call (kernel/dense_finish.c). Rotations have R^-1 in
 * R^T; boosts and translations turn by a third operator (plan.inverse), whose coefficients stand behind those of the
 * transposed turns. To turn back, y = C^T R^-1 x, turns gain of C G C^T, and C of G itself.
 */
#pragma once

#include "cpu/rotors.h"
#include "plan/gradient.h"

/* Emits, of a head whose turns are `turns`, under the name of emit_turned_columns' function
 *     NAME_adjoint(basis, coefficients, outer, gains, sums)
 *         basis         float32 [padded][padded], C column by column, zeros beyond size
 *         coefficients  of a token by emit_turned_back_name's function; NULL: it is not turned
 *         outer         float32 [padded][padded]: G, zeros beyond size
 *         gains         float64 [torques][lanes of the plan]: what they are; of a token that is turned
 *         sums          float64 [padded][padded], to which (R^T G R^-T)^T is added, or G to turn back; NULL: not wanted
 *     NAME_turn(basis, coefficients, outer): of the sum of g x^T, x what encode read, that of g y^T, in its place;
 *         coefficients are those of the turns, or of the transposed ones to turn back
 * and the rotors of the transposed turns and of those that turn back. of: NULL where nothing that turns are made of
 * gains. */
void emit_basis_adjoint(const chunk_walk *turns, const plan_gradient *of, const char *name);

/* The function that makes `coefficients` of adjoint, as rotor_T makes those of the turns, and their bytes. */
const char *emit_turned_back_name(arena *a, const plan *turns, const cpu_target *target);
int64_t emit_turned_back_bytes(arena *a, const plan *turns, const cpu_target *target);
