/* cpu/attention/attention: attention of one tile of queries, as MLIR for one CPU target; see kernel/attention.h.
 *
 * Everything has the queries in the lanes: scores are [key][query], the output is [channel][query] until it
 * is written. So a key's channel and a value's channel are scalars that are spread over the lanes as they
 * are read from their own memory: nothing is packed, the softmax's maxima and sums need no reduction across lanes,
 * and what a pair function computes is computed for a register of queries at once.
 *
 * A file is a stage, and what it remembers is the struct in its header: rows of tensors (rows), queries and outputs
 * turned (queries), coordinates of keys (places), blocks that a displacement turns (blocks), expressions of
 * displacements (delta), tables of them (grid), what pairs add (pairwise, columns), scores, the softmax, values. All
 * stand on tile.h, and none on a stage behind it.
 */
#pragma once

#include "cpu/attention/columns.h"
#include "cpu/attention/grid.h"
#include "cpu/attention/rows.h"
#include "cpu/attention/values.h"

/* attend_T_DTYPE(tile) for each number type: attend_T, which is float32 throughout, with the type's own rows; and
 * attend_dots_T(tile) of bfloat16, which multiplies pairs of them (cpu/attention/dots). */
void emit_attention(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes);
void emit_attention_imports(ir *b);

/* Whether attend_T asks for rows of the next tile's queries and outputs, so that the driver need not. */
bool attention_asks(const attention_plan *p, const attention_shape *s);

/* attend_gradient_T_DTYPE(tile), store_keys_T_DTYPE and store_values_T_DTYPE for each number type; behind what
 * emit_attention makes of the same target. operands: the plan of what they alone gain,
 * attend_operands_gradient_T_DTYPE, turned: that of rows that come turned, attend_turned_gradient_T_DTYPE; NULL: there
 * is none. */
void emit_attention_gradient(ir *b, arena *a, const attention_plan *p, const attention_plan *operands,
                             const attention_plan *turned, const cpu_target *target, unsigned dtypes);
/* attend_tangent_T_DTYPE(tile), or attend_turned_tangent_T_DTYPE of a plan of rows that come turned; behind what
 * emit_attention_gradient makes of the same target. */
void emit_attention_tangent(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes);
