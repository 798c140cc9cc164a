/* gpu/attention_backward: gradients of attention on a GPU: entries beside tile programs (gpu/mma.h).
 *
 * Two tile programs are launched one after the other. A block of the first has tiles of queries and walks over the
 * keys: it writes what queries gain, a number of each query for the second, and sums what operands of the bias gain. A
 * block of the second has a tile of keys and walks over the queries of all heads that share it. Either makes scores
 * again and weights by the log-sum-exp; nothing is added by two threads.
 *
 * What pairs give operands has a place for each warp of the first program's blocks, whose sums two small entries add up
 * in order (gpu/finish). What they give positions is a number of each query and head in the first program, of each key
 * and head in the second; a small entry adds up heads, and batches that share positions. Where the bias is a
 * polynomial, the first writes the gradients of each query's weights: a third entry takes these on to inputs and
 * operands.
 */
#pragma once

#include "base/number.h"
#include "gpu/attention.h"
#include "gpu/give.h"

#include "kernel/launch.h"

/* Appends the entries beside tile programs: where operands gain ..._attention_backward_sum and ..._total, where
 * positions do ..._positions; of a polynomial ..._attention_backward_weights_DTYPE, ..._sum, ..._scatter and
 * ..._gather. Nothing where there are no gradients. */
void gpu_add_attention_gradients(arena *a, gpu_program *program, const attend_design *design, unsigned dtypes);
/* What stands of gradients in the head of the PTX file. */
void attend_print_gradients(FILE *out, const gpu_program *program);
/* Whether tile programs of rows' gradients fit; numbers of tokens that inputs gain by, 0: they gain nothing. */
bool attend_has_gradients(const attend_design *design);
int attend_summed(const attend_design *design);
/* Bits: operands that gain; and those that do of pairs, element by element: of a polynomial they gain of its weights.
 */
unsigned attend_gaining(const attend_design *design);
unsigned attend_gaining_of_pairs(const attention_plan *p);

/* ---- gpu/attention_weights.c: from weights to inputs and operands ---- */

bool attend_weights_fit(const attention_plan *p);
void attend_add_weight_entries(arena *a, gpu_program *program, const attention_plan *p, unsigned dtypes);
void gpu_emit_attention_weights(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                                bool host);
