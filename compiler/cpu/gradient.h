/* cpu/gradient: gradients of operands and positions, for one processor's target: kernel/loop.h, pegen_gradient_loop.
 *
 * Functions have the target's suffix and a word behind it:
 *
 *     prepare_T_grad(leaves, prepared)       what the next one takes from operands alone
 *     spread_T_grad(torques, tau)            from a token's torques, as rows' channels give them, to blocks
 *     gain_T_grad_FRAME(position, prepared, tau, sums, wanted, gained)
 *         adds to sums (0: not wanted) what a token's boundaries gain of its torques, and to gained, where that is
 *         wanted, what its coordinates do
 *     scatter_T_grad(leaves, sums, gained)   from the sums of all tokens to operands' elements
 *     encode_T_grad_DTYPE(loop)              rows, and from rows on (cpu/gain)
 *
 * One encode function serves what encode wrote and what it read (pegen_gradient_loop.from_input): the frames differ in
 * the gradient that a row's torque is made with, and in the expressions that take the torques. Where those do not
 * differ, there is one function of both.
 */
#pragma once

#include "cpu/gain.h"
#include "program/program.h"

/* prepare, gain and scatter. */
void emit_gradient_expressions(ir *b, arena *a, const gradient_code *g);
/* The last of them alone. */
void emit_gradient_scatter(ir *b, arena *a, const gradient_code *g);
/* backward: the program of a form's rows with their torques; plans: of encode, one for each of the row's parts. */
void emit_gradient(ir *b, arena *a, const program *backward, const plan *const *plans, const plan_gradient_row *of,
                   const cpu_target *target, unsigned dtypes);
