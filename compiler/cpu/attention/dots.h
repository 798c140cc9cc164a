/* cpu/attention/dots: products of two neighbouring bfloat16 at a time, for processors that have an instruction of it.
 *
 * A dword of a row is two channels; of values, which are woven for it, two keys. Rows of queries and keys are so many
 * dwords as they lie in their tensors. Weights are rounded to bfloat16; scores, sums and outputs are float32.
 */
#ifndef PEGEN_CPU_ATTENTION_DOTS_H
#define PEGEN_CPU_ATTENTION_DOTS_H

#include "cpu/attention/tile.h"

/* Numbers of a row that one product takes: 1 of float32. */
static inline int attention_step(const attention_emitter *e) { return e->dots ? 2 : 1; }
/* Steps that hold `count` numbers. */
ir_value attention_steps(const attention_emitter *e, ir_value count);

/* z + x y; of dot products the bits of x and y are pairs. */
ir_value attention_product(const attention_emitter *e, ir_value x, ir_value y, ir_value z);
/* That sum without products of weights that are 0, whatever the values are. */
ir_value attention_guarded_product(const attention_emitter *e, ir_value value, ir_value weight, ir_value sum);
/* Registers of float32 as the lower and upper halves of pairs. */
ir_value emit_pairs(const attention_emitter *e, ir_value low, ir_value high);
/* Rows of bfloat16, `stride` bytes apart, to pairs of rows: [row / 2][width]; the last one's partner may be zeros. */
void emit_woven_rows(const attention_emitter *e, ir_value from, ir_value stride, ir_value count, int width,
                     ir_value to);

#endif
