/* cpu/change_of_basis: the functions of turns after a change of basis for one target; see kernel/dense.h for what they
 * are called with. In place of angles they have the coefficient vectors of rotor_T (cpu/rotors.h). */
#ifndef PEGEN_CPU_CHANGE_OF_BASIS_H
#define PEGEN_CPU_CHANGE_OF_BASIS_H

#include "mlir/ir.h"
#include "plan/change_of_basis.h"

void emit_basis(ir *b, arena *a, const plan_basis *p, const cpu_target *target, unsigned dtypes);

/* Bytes of a token's coefficient vectors. */
int64_t emit_basis_coefficient_bytes(arena *a, const plan_basis *p, const cpu_target *target);

#endif
