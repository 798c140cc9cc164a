/* cpu/backward: gradients of rows and of what rotors were made of, for one processor's target.
 *
 * Functions have the target's suffix and a word behind it, so that they stand beside those of encode:
 *
 *     rotor_T_back(positions, prepared, coefficients), unfold_T_back(values, coefficients)
 *     encode_T_back_DTYPE_STORE(loop)      rows by transposed matrices; where those differ from the matrices in
 *                                          nothing but a token's numbers, encode_T_DTYPE_STORE is it
 */
#pragma once

#include "mlir/ir.h"
#include "program/program.h"
#include "target/processor.h"

/* transposed: of an encode program whose rows are turned. */
void emit_backward(ir *b, arena *a, const program *transposed, const cpu_target *target, unsigned dtypes);
/* The target under which the functions of rows' gradients have their names. */
const cpu_target *emit_backward_target(arena *a, const cpu_target *target);
