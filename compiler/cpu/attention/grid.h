/* cpu/attention/grid: pair functions on the built-in grid, from tables. */
#pragma once

#include "cpu/attention/delta.h"

typedef struct grid_emitter {
  const attention_emitter *e;
  grid_shape shape;
  ir_value bias_table, bias_at; /* biases of a tile's runs, and where each key's begin in them */
  ir_value entry_table;         /* entries of some blocks' matrices in one run: [block][entry][group] */
  ir_value shared_table;        /* what all blocks' entries begin from */
  two_float *fixed;             /* by expr id: values that are the same for all pairs of the call */
} grid_emitter;

/* Emits the code of a tile of keys, of which it is known which they are. */
typedef void emit_key_tile_function(void *context, const key_tile *keys);
/* Keys of a tile: of a plan by rows whole rows of the grid, or one of several segments, each a tile of its own. */
int64_t attention_key_step(const attention_plan *p, const attention_shape *s);
void emit_grid_segments(const grid_emitter *g, key_tile t, emit_key_tile_function *visit, void *context);

/* Room for tables; once, at the head of the function. */
grid_emitter emit_grid_begin(const attention_emitter *e, two_float *fixed);
/* Biases of a tile of keys, and then those of a key and the queries of a register. */
void emit_grid_bias_table(const grid_emitter *g, const key_tile *t);
ir_value emit_grid_bias(const grid_emitter *g, ir_value key, int vector);
/* The other way: numbers [key][queries] of a tile of keys summed by displacement, into tables like those of biases, and
 * then each of a table's registers with its displacements: `visit` makes of them what it will. */
typedef void emit_displacement_visitor(void *context, delta_emitter *d);
ir_value emit_grid_sums_room(const grid_emitter *g);
void emit_grid_sums(const grid_emitter *g, const key_tile *t, ir_value numbers, ir_value room,
                    emit_displacement_visitor *visit, void *context);
/* Tables of entries stand for one run of a tile's keys, and for some blocks, at a time. */
typedef struct grid_part {
  ir_value begin, last; /* keys of the run, counted from the tile's first */
  ir_value first, end; /* blocks */
} grid_part;
typedef void emit_grid_part_visitor(void *context, const grid_part *part);
void emit_grid_parts(const grid_emitter *g, const key_tile *t, emit_grid_part_visitor *visit, void *context);
/* A block's tables, and there the entries of a key (counted from the run's first) with the queries of a register. */
ir_value emit_grid_block_tables(const grid_emitter *g, const grid_part *part, ir_value block);
void emit_grid_entry(const grid_emitter *g, ir_value tables, ir_value key, int vector, ir_value *entry);
/* Adds the rotated part of the scores of a tile. */
void emit_grid_rotations(const grid_emitter *g, const key_tile *t);
