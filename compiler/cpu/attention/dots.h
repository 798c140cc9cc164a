/* cpu/attention/dots: products of two neighbouring bfloat16 at a time, for processors that have an instruction of it.
 *
 * A dword of a row is two channels; of values, which are woven for it, two keys. Rows of queries and keys are so many
 * dwords as they lie in their tensors. Weights are rounded to bfloat16; scores, sums and outputs are float32.
 */
#pragma once

#include "cpu/attention/tile.h"

/* Numbers of a row that one product takes: 1 of float32. */
static inline int attention_step(const attention_emitter *e) { return e->dots ? 2 : 1; }
/* Steps that hold `count` numbers. */
ir_value attention_steps(const attention_emitter *e, ir_value count);

/* An emitter of dot products, whose functions may use them: the caller puts the target's features back. */
attention_emitter attention_emitter_of_dots(ir *b, arena *a, const attention_plan *p, const cpu_target *target);

/* z + x y; of dot products the bits of x and y are pairs. */
ir_value attention_product(const attention_emitter *e, ir_value x, ir_value y, ir_value z);
/* That sum without products of weights that are 0, whatever the values are. */
ir_value attention_guarded_product(const attention_emitter *e, ir_value value, ir_value weight, ir_value sum);
/* Registers of float32 as the lower and upper halves of pairs. */
ir_value emit_pairs(const attention_emitter *e, ir_value low, ir_value high);
/* `count` rows [queries] of float32 as pairs of queries, [row][queries / 2], or of rows, [row / 2][queries], where the
 * row behind an odd number of them becomes 0. */
void emit_paired_queries(const attention_emitter *e, ir_value rows, ir_value count, ir_value to);
void emit_paired_rows(const attention_emitter *e, ir_value rows, ir_value count, ir_value to);
/* Fills the row behind an odd number of rows [queries] with `number`, so that their last pair is whole. */
void emit_partner(const attention_emitter *e, ir_value rows, ir_value count, double number);
/* Rows of `width` bfloat16, `stride` bytes apart, to pairs of rows, [row / 2][pitch]; the last one's partner may be
 * zeros. */
void emit_woven_rows(const attention_emitter *e, ir_value from, ir_value stride, ir_value count, int width, int pitch,
                     ir_value to);
/* The micro-kernel of scores: sums [rows][vectors] += channels [begin, end) of each of shape.rows rows (pointers to
 * float32, or to bfloat16 that dot products take) times those of e->queries. */
void emit_products(const attention_emitter *e, const ir_value *rows, int begin, int end, ir_value *sums);
