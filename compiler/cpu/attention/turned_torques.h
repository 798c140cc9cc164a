/* cpu/attention/turned_torques: what operands and coordinates gain of pairs that are rotated, off the grid. */
#ifndef PEGEN_CPU_ATTENTION_TURNED_TORQUES_H
#define PEGEN_CPU_ATTENTION_TURNED_TORQUES_H

#include "cpu/attention/place_sums.h"

typedef struct turned_torques {
  const pair_emitter *pairs;
  const place_sums *places;
  ir_value is_wanted, wants_operands; /* i1 */
  ir_value factor; /* of the product, lanes */
  ir_value sums;   /* float64 [scatter][block][lanes], of the tile */
} turned_torques;

/* Once, at the head of the function. */
turned_torques emit_turned_torques_begin(const place_sums *places, ir_value factor);
/* Once a block, for its emitter of displacements. */
void emit_turned_torques_fixed(const turned_torques *s, delta_emitter *d);
/* A block of key `key` with the queries of a register: g = S' q, y = R k, `counts` (lanes of i1) where S' is not 0; d
 * stands at their displacements. */
void emit_turned_torques(const turned_torques *s, delta_emitter *d, const ir_value *g, const ir_value *y,
                         ir_value counts, ir_value key, int vector);
/* Behind all tiles of keys. */
void emit_turned_torques_end(const turned_torques *s);

#endif
