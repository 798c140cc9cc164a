/* cpu/attention/operand_sums: what operands of a bias gain of a tile of queries. */
#ifndef PEGEN_CPU_ATTENTION_OPERAND_SUMS_H
#define PEGEN_CPU_ATTENTION_OPERAND_SUMS_H

#include "cpu/attention/pairwise.h"

typedef struct operand_sums {
  const pair_emitter *pairs;
  ir_value is_wanted; /* i1 */
  ir_value sums;      /* float64 [scatters][lanes], of the tile */
  ir_value room;      /* of a plan by rows: emit_grid_sums_room */
} operand_sums;

/* Once, at the head of the function. */
operand_sums emit_operand_sums_begin(const pair_emitter *pairs);
/* A tile of keys, whose scores gain [key][queries]. */
void emit_operand_sums(const operand_sums *s, const key_tile *t, ir_value gains);
/* Behind all of them. */
void emit_operand_sums_end(const operand_sums *s);

#endif
