/* cpu/attention/delta: expressions of a displacement r_j - r_i as code, queries in the lanes. */
#pragma once

#include "cpu/attention/tile.h"
#include "mlir/expr.h"

/* Numbers of a pair: of its places, of the product, and values of strips; null: they are computed. */
enum { PAIR_NUMBERS = SPEC_MAX_PLACES + ATTENTION_MAX_STRIPS };

typedef struct delta_emitter {
  /* First: a leaf is asked for by it. `fixed` holds scalars that no displacement changes and lives as long as they
   * dominate; `varying`, of one displacement, is the caller's to set. */
  expr_walker walker;
  const attention_emitter *e;
  ir_value block;         /* i64; null: block 0 */
  const ir_value *wide;   /* [axes] displacement, lanes of float64; NULL: not needed */
  const ir_value
      *narrow; /* [PAIR_NUMBERS] the same as float32; NULL: rounded from wide. Where rows are (attention_is_row):
                * i64, lanes of queries' rows or one value of a key's, by lanes of keys the other way */
  ir_value cotangent;     /* lanes of float32: what the displacement's scores gain; null: not needed */
  const ir_value *torques; /* [n_torques] the same of blocks; NULL: not needed */
  ir_value key, vector;   /* i64: of which pairs it is, off the grid */
} delta_emitter;

delta_emitter delta_emitter_create(const attention_emitter *e, two_float *fixed);
/* Creates the emitter of one displacement that is given as float32. */
delta_emitter delta_emitter_at(const attention_emitter *e, two_float *fixed, const ir_value *narrow);
/* A description's sink: lanes that are the same. */
ir_value emit_sink(const attention_emitter *e);
/* A row's maximum and sum before its first key: lanes that are the same. has_sink: i1; null: a sink counts. */
void emit_nothing_seen(const attention_emitter *e, ir_value has_sink, ir_value *maximum, ir_value *sum);
/* Where the element of an operand is that a node (ELEMENT) reads: i32, lanes where it varies. */
ir_value emit_element_place(delta_emitter *d, const expr *x);
/* Which element of a row a node (INPUT_AT) reads: i32, lanes where it varies. */
ir_value emit_row_index(delta_emitter *d, const expr *x);
/* Values by expr id, none of them known. */
two_float *delta_memo(const attention_emitter *e);
