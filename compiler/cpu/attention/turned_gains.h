/* cpu/attention/turned_gains: what queries and keys gain of pairs whose blocks are turned by their displacement. */
#pragma once

#include "cpu/attention/key_sums.h"
#include "cpu/attention/pair_sums.h"

typedef struct turned_gains {
  const pair_emitter *pairs;
  ir_value q, g_q;      /* [head_dim][queries]: without the factor of scores; added to */
  ir_value wants_keys;  /* i1 */
  ir_value partial;     /* [component][key][lanes] of a block and a register of keys */
  ir_value gained;      /* [channel][key] of a tile of keys: their sums */
  int channels, keys;   /* of `gained` */
  const pair_sums *sums; /* what else gains of pairs */
} turned_gains;

/* The table of channels that no pair turns; once, before a target's functions. */
void emit_unturned_channels(ir *b, arena *a, const attention_plan *p, const cpu_target *target);

/* Room; once, at the head of the function. What stands above `partial`, and torques, is the caller's. */
void emit_turned_gains_begin(turned_gains *s);
/* g_q += S' R k of a tile of keys, and sums [key][pitch] += S'^T R^T q, where S' is gains [key][queries], for all
 * channels, turned or not. guarded (i1): products of an S' of 0 are left out. */
void emit_turned_gains(const turned_gains *s, const key_tile *t, ir_value gains, ir_value sums, ir_value guarded);
