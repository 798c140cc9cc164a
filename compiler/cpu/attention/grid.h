/* cpu/attention/grid: pair functions on the built-in grid, from tables. */
#ifndef PEGEN_CPU_ATTENTION_GRID_H
#define PEGEN_CPU_ATTENTION_GRID_H

#include "cpu/attention/tile.h"
#include "mlir/expr.h"

typedef struct grid_emitter {
  const attention_emitter *e;
  grid_shape shape;
  ir_value bias_table, bias_at; /* biases of a tile's runs, and where each key's begin in them */
  ir_value entry_table;         /* entries of some blocks' matrices in one run: [block][entry][group] */
  ir_value shared_table;        /* what all blocks' entries begin from */
  two_float *fixed;             /* by expr id: values that are the same for all pairs of the call */
} grid_emitter;

grid_shape grid_shape_of(const attention_plan *p, const attention_shape *s);

/* Emits the code of a tile of keys [first, first + count). */
typedef void emit_key_tile_function(void *context, ir_value first, ir_value count, bool paired);
/* Calls tile for whole runs of keys. */
void emit_grid_keys(const attention_emitter *e, const grid_shape *g, ir_value begin, ir_value end,
                    emit_key_tile_function *tile, void *context);

/* Room for tables; once, at the head of the function. */
grid_emitter emit_grid_begin(const attention_emitter *e, two_float *fixed);
/* Biases of a tile of keys, and then those of a key and the queries of a register. */
void emit_grid_bias_table(const grid_emitter *g, const key_tile *t);
ir_value emit_grid_bias(const grid_emitter *g, ir_value key, int vector);
/* Adds the rotated part of the scores of a tile. */
void emit_grid_rotations(const grid_emitter *g, const key_tile *t);

#endif
