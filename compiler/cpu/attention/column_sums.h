/* cpu/attention/column_sums: what the weights of a polynomial bias gain of a tile of queries, and coordinates. */
#ifndef PEGEN_CPU_ATTENTION_COLUMN_SUMS_H
#define PEGEN_CPU_ATTENTION_COLUMN_SUMS_H

#include "cpu/attention/columns.h"
#include "cpu/attention/place_sums.h"

typedef struct column_sums {
  const column_emitter *columns;
  ir_value is_wanted; /* i1 */
  int n_monomials;    /* of the weights' shapes, one after the other */
  const monomial **monomial;
  ir_value sums; /* [monomials][queries] */
} column_sums;

/* Once, at the head of the function. */
column_sums emit_columns_sums_begin(const column_emitter *columns);
/* A tile of keys, whose places stand in columns->places and whose scores gain [key][queries]. */
void emit_columns_sums(const column_sums *s, const key_tile *t, ir_value gains);
/* What displacements gain of the same. */
void emit_columns_place_gains(const column_sums *s, const place_sums *places, const key_tile *t, ir_value gains);
/* Behind all of them: tile->weight_gains. */
void emit_columns_sums_end(const column_sums *s);

#endif
