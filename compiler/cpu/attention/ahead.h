/* cpu/attention/ahead: rows that are wanted soon are asked for while there is other work. */
#ifndef PEGEN_CPU_ATTENTION_AHEAD_H
#define PEGEN_CPU_ATTENTION_AHEAD_H

#include "cpu/attention/tile.h"

typedef struct rows_ahead {
  ir_value rows, count, lines; /* of the gradient's tile */
  ir_value step;               /* rows that each call asks for */
  ir_value next;               /* i64 in memory: the first that nobody asked for */
} rows_ahead;

/* emit_ahead will run so many times a tile of the keys. */
rows_ahead emit_ahead_begin(const attention_emitter *e, ir_value keys, int calls);
/* Asks for the next few. */
void emit_ahead(const attention_emitter *e, const rows_ahead *a);

#endif
