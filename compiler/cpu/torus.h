/* cpu/torus: matrices of blocks whose generators commute, in the basis in which they are plane rotations.
 *
 * With A = S (+ lambda_k J) S^T the output is kept in that basis: x -> (+ R(theta lambda_k)) S^T x, for the S in front
 * cancels in scores. So a block's matrix is S^T with its rows turned in pairs: two multiplications an entry.
 */
#ifndef PEGEN_CPU_TORUS_H
#define PEGEN_CPU_TORUS_H

#include "mlir/ir.h"
#include "target/processor.h"

/* Emits NAME(basis, angle, out), one block at a time, with `padded` the block's size in whole vectors of float32:
 *     basis  float64 [padded] eigenvalues, one a component: -lambda_k at 2k, lambda_k at 2k + 1, then 0; then
 *            float32 [size][padded], S^T column by column
 *     angle  float64, radians per unit of an eigenvalue
 *     out    float32 [size][size] column by column, times `amplitude` */
void emit_turns(ir *b, const cpu_target *target, int size, const char *name, double amplitude);

#endif
