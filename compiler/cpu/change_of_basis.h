/* cpu/change_of_basis: the product of a token's turns with a matrix of the whole head, by turning its columns as rows
 * are turned; see kernel/dense.h for what it is called with. In place of angles it has the coefficient vectors of
 * rotor_T (cpu/rotors.h). */
#ifndef PEGEN_CPU_CHANGE_OF_BASIS_H
#define PEGEN_CPU_CHANGE_OF_BASIS_H

#include "cpu/rotors.h"

/* NAME(matrix, coefficients, out): each column of `size` float32 that lie one behind the other, `stride` and in `out`
 * `out_stride` numbers apart. */
void emit_turned_columns(const chunk_walk *w, int size, int stride, int out_stride, const char *name);

/* Bytes of a token's coefficient vectors. */
int64_t emit_coefficient_bytes(arena *a, const plan *p, const cpu_target *target);

#endif
