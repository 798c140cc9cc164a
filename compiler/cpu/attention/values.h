/* cpu/attention/values: a tile's part of the output, output = output decay + p v. */
#ifndef PEGEN_CPU_ATTENTION_VALUES_H
#define PEGEN_CPU_ATTENTION_VALUES_H

#include "cpu/attention/rows.h"

/* look_T_DTYPE(tile): whether some key or value of the head is not finite. */
void emit_look(attention_emitter *e, int dtype);
const char *emit_look_name(arena *a, const cpu_target *target, int dtype);
/* The tile's scores are p; decay: one a register of queries. */
void emit_attention_values(const attention_emitter *e, const attention_rows *r, const key_tile *t, ir_value output,
                           const ir_value *decay);

#endif
