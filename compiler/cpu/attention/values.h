/* cpu/attention/values: a tile's part of the output, output = output decay + p v. */
#pragma once

#include "cpu/attention/rows.h"

/* look_T_DTYPE(tile): whether some key or value of the head is not finite. */
void emit_look(attention_emitter *e, int dtype);
/* Tells the driver where it asks (the tile's `lost`) whether some output, [value_dim][queries], is not finite. */
void emit_tell_lost(const attention_emitter *e, ir_value output);
/* The tile's scores are p; decay: one a register of queries. */
void emit_attention_values(const attention_emitter *e, const attention_rows *r, const key_tile *t, ir_value output,
                           const ir_value *decay);
/* output [width][queries] = output decay + rows of a tile of keys times its weights, which stand where scores do; decay
 * NULL: none. */
void emit_weighted_rows(const attention_emitter *e, const row_view *rows, const key_tile *t, int width, ir_value output,
                        const ir_value *decay);
/* i1: products of weights of 0 must be left out, for what they multiply may be no number. */
ir_value emit_is_guarded(const attention_emitter *e, const key_tile *t);
