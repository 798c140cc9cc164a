/* cpu/attention/ahead: rows that are wanted soon are asked for while there is other work. */
#ifndef PEGEN_CPU_ATTENTION_AHEAD_H
#define PEGEN_CPU_ATTENTION_AHEAD_H

#include "cpu/attention/tile.h"

typedef struct rows_ahead {
  ir_value tile;  /* the gradient's, which has the rows */
  ir_value state; /* in memory, i64 [2]: the first row that nobody asked for, and how many each call asks for */
} rows_ahead;

/* emit_ahead will run so many times for each group of `keys` whose scores are summed together. */
rows_ahead emit_ahead_begin(const attention_emitter *e, ir_value keys, int calls);
/* Asks for the next few, by a function of the module, once for each target. */
void emit_ahead_function(const attention_emitter *e);
void emit_ahead(const attention_emitter *e, const rows_ahead *a);

#endif
