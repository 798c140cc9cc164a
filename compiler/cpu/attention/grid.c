/* cpu/attention/grid: pair functions on the built-in grid, tabulated along its last axis; see
 * cpu/attention/attention.h.
 *
 * On a grid of W columns a row of keys and a register of neighbouring queries have no more than W + lanes - 1
 * displacements, and every pair of theirs is one of them. So for each run of keys (a row of the grid, or a segment of
 * one) a bias, or each distinct entry of a block's matrix, is computed once per displacement into a table that stays in
 * the nearest cache, and a pair's value is a load. Tables run against the displacement, in the direction of the
 * queries: entry u is of the displacement (first key - first query) + segment - 1 - u, and lanes read neighbours.
 *
 * Nothing is kept from tile to tile: no memory grows with the grid.
 */
#include "base/diag.h"
#include "cpu/attention/delta.h"
#include "mlir/arith.h"

#include "kernel/attention.h"

#include <stddef.h>
#include <string.h>

static int64_t width_of(const attention_plan *p) { return p->spec->grid[p->spec->n_axes - 1]; }

/* ---- shapes ---- */

grid_shape grid_shape_of(const attention_plan *p, const attention_shape *s) {
  int64_t width = width_of(p);
  grid_shape g = {.width = width};
  g.segments = (int)((width + s->keys - 1) / s->keys);
  g.segment = (int)((width + g.segments - 1) / g.segments);
  g.runs = g.segments > 1 ? 1 : (int)(s->keys / width);
  /* Where a tile's registers are neighbours in one row of the grid, they share a table. */
  g.is_shared = width % s->queries == 0;
  g.groups = g.is_shared ? 1 : s->vectors;
  g.vectors = ((g.is_shared ? s->queries : s->lanes) + g.segment - 1 + s->lanes - 1) / s->lanes;
  return g;
}

static int group_of(const grid_shape *g, int vector) { return g->is_shared ? 0 : vector; }

/* Where the lanes of a register begin in its group's tables, in bytes. */
static int64_t lane_offset(const attention_emitter *e, int vector) {
  return e->grid.is_shared ? (int64_t)vector * e->shape.lanes * 4 : 0;
}

static int64_t table_bytes(const attention_emitter *e) { return (int64_t)e->grid.vectors * e->shape.lanes * 4; }

/* ---- tiles of keys: whole runs ---- */

void emit_grid_keys(attention_emitter *e, ir_value begin, ir_value end,
                    void (*tile)(attention_emitter *, ir_value, ir_value, bool)) {
  ir *b = e->b;
  const grid_shape *g = &e->grid;
  ir_value total = sub(b, end, begin), width = i64(b, g->width);
  if (g->segments == 1) {
    ir_value step = i64(b, g->runs * g->width);
    ir_loop tiles =
        ir_for(b, e->zero, ir_op2(b, "arith.divsi", attention_add(b, total, i64(b, g->runs * g->width - 1)), step));
    ir_value first = attention_add(b, begin, mul(b, tiles.index, step));
    tile(e, first, smaller(b, sub(b, end, first), step), true);
    ir_end_for(b, tiles);
    return;
  }
  ir_loop rows = ir_for(b, e->zero, ir_op2(b, "arith.divsi", attention_add(b, total, i64(b, g->width - 1)), width));
  ir_loop segments = ir_for(b, e->zero, i64(b, g->segments));
  ir_value column = attention_mul(b, segments.index, g->segment);
  ir_value first = attention_add(b, begin, attention_add(b, mul(b, rows.index, width), column));
  ir_value count = smaller(b, sub(b, end, first), smaller(b, i64(b, g->segment), sub(b, width, column)));
  ir_branch some = ir_if(b, ir_compare_int(b, "sgt", count, e->zero)); /* causal queries end inside a row */
  tile(e, first, count, true);
  ir_end_if(b, some);
  ir_end_for(b, segments);
  ir_end_for(b, rows);
}

/* ---- displacements of a run ---- */

/* Coordinates of a run's first key less those of a group's first query, float64 scalars. */
static void emit_corner(attention_emitter *e, ir_value key, int group, ir_value *corner) {
  ir *b = e->b;
  const spec *s = e->p->spec;
  ir_value rest = sub(b, key, i64(b, s->skip_tokens));
  for (int axis = s->n_axes - 1; axis >= 0; axis--) {
    ir_value size = i64(b, s->grid[axis]), coordinate = axis ? ir_op2(b, "arith.remui", rest, size) : rest;
    int64_t at = (int64_t)offsetof(pegen_attention_tile, positions) +
                 ((int64_t)axis * PEGEN_ATTENTION_QUERIES + (int64_t)group * e->shape.lanes) * 8;
    corner[axis] = ir_op2(b, "arith.subf", ir_cast(b, "arith.sitofp", coordinate, b->f64),
                          ir_load(b, b->f64, ir_offset_const(b, e->tile, at), 8));
    if (axis) rest = ir_op2(b, "arith.divui", rest, size);
  }
}

/* Displacements of the lanes of vector `index` (i64) of a table. */
static void emit_displacements(attention_emitter *e, const ir_value *corner, ir_value index, ir_value *wide) {
  ir *b = e->b;
  int axes = e->p->spec->n_axes, lanes = e->shape.lanes;
  MlirType type = ir_vector(b, lanes, b->f64);
  double against[64];
  for (int i = 0; i < lanes; i++) against[i] = e->grid.segment - 1 - i;
  for (int axis = 0; axis < axes; axis++) wide[axis] = ir_broadcast(b, type, corner[axis]);
  ir_value behind = ir_cast(b, "arith.sitofp", attention_mul(b, index, -lanes), b->f64);
  ir_value steps = ir_op2(b, "arith.addf", ir_floats(b, type, against), ir_broadcast(b, type, behind));
  wide[axes - 1] = ir_op2(b, "arith.addf", wide[axes - 1], steps);
}

/* ---- a bias ---- */

void emit_grid_begin(attention_emitter *e) {
  ir *b = e->b;
  int64_t runs = e->grid.runs, groups = e->grid.groups;
  if (e->p->bias) {
    e->bias_table = ir_alloca(b, runs * groups * table_bytes(e), 64);
    e->bias_at = ir_alloca(b, (int64_t)(e->shape.keys + e->shape.rows) * 8, 64);
    /* Where a key's values begin in the tables: the same for all tiles. Keys past the end read inside the last run's.
     */
    ir_loop keys = ir_for(b, e->zero, i64(b, e->shape.keys + e->shape.rows));
    ir_value run = smaller(b, ir_op2(b, "arith.divui", keys.index, i64(b, e->grid.segment)), i64(b, runs - 1));
    ir_value column =
        smaller(b, sub(b, keys.index, attention_mul(b, run, e->grid.segment)), i64(b, e->grid.segment - 1));
    ir_value at = attention_add(b, attention_mul(b, run, groups * table_bytes(e)),
                                attention_mul(b, sub(b, i64(b, e->grid.segment - 1), column), 4));
    ir_store(b, at, ir_offset(b, e->bias_at, attention_mul(b, keys.index, 8)), 8, false);
    ir_end_for(b, keys);
  }
  if (!e->p->matrix) return;
  e->entry_table = ir_alloca(b, (int64_t)e->p->n_entries * groups * table_bytes(e), 64);
  e->shared_table = ir_alloca(b, (int64_t)(e->p->n_shared + 1) * groups * table_bytes(e) * 2, 64);
}

/* Runs of a tile of keys. */
static ir_value run_count(attention_emitter *e, const key_tile *t) {
  return ir_op2(e->b, "arith.divui", attention_add(e->b, t->count, i64(e->b, e->grid.segment - 1)),
                i64(e->b, e->grid.segment));
}

void emit_grid_bias_table(attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  ir_loop runs = ir_for(b, e->zero, run_count(e, t));
  ir_value key = attention_add(b, t->first, attention_mul(b, runs.index, e->grid.segment));
  for (int group = 0; group < e->grid.groups; group++) {
    ir_value corner[SPEC_MAX_AXES], wide[SPEC_MAX_AXES], narrow[SPEC_MAX_AXES];
    emit_corner(e, key, group, corner);
    ir_value table =
        ir_offset(b, e->bias_table,
                  attention_mul(b, attention_add(b, attention_mul(b, runs.index, e->grid.groups), i64(b, group)),
                                table_bytes(e)));
    ir_loop vectors = ir_for(b, e->zero, i64(b, e->grid.vectors));
    emit_displacements(e, corner, vectors.index, wide);
    for (int axis = 0; axis < e->p->spec->n_axes; axis++) narrow[axis] = ir_cast(b, "arith.truncf", wide[axis], b->f32);
    delta_emitter d = delta_emitter_create(e, e->fixed);
    d.walker.varying = delta_memo(e);
    d.narrow = narrow;
    ir_store(b, emit_expr_f32(&d.walker, e->p->bias),
             ir_offset(b, table, attention_mul(b, vectors.index, e->shape.lanes * 4)), 4, false);
    ir_end_for(b, vectors);
  }
  ir_end_for(b, runs);
}

ir_value emit_grid_bias(attention_emitter *e, ir_value key, int vector) {
  ir *b = e->b;
  ir_value at = ir_load(b, b->i64, ir_offset(b, e->bias_at, attention_mul(b, key, 8)), 8);
  int64_t group = group_of(&e->grid, vector) * table_bytes(e);
  return ir_load(b, e->lanes, ir_offset_const(b, ir_offset(b, e->bias_table, at), group + lane_offset(e, vector)), 4);
}

/* ---- rotations ---- */

/* Where shared value `index` of a group's vector lies; all have room for float64. */
static ir_value shared_at(attention_emitter *e, int index, int group, ir_value vector) {
  ir *b = e->b;
  int64_t table = ((int64_t)index * e->grid.groups + group) * table_bytes(e) * 2;
  return ir_offset(b, ir_offset_const(b, e->shared_table, table), attention_mul(b, vector, e->shape.lanes * 8));
}

/* What all blocks share of a run: distances and directions. */
static void emit_shared(attention_emitter *e, ir_value key) {
  ir *b = e->b;
  for (int group = 0; group < e->grid.groups; group++) {
    ir_value corner[SPEC_MAX_AXES], wide[SPEC_MAX_AXES];
    emit_corner(e, key, group, corner);
    ir_loop vectors = ir_for(b, e->zero, i64(b, e->grid.vectors));
    emit_displacements(e, corner, vectors.index, wide);
    delta_emitter d = delta_emitter_create(e, delta_memo(e));
    d.walker.varying = delta_memo(e);
    d.wide = wide;
    for (int i = 0; i < e->p->n_shared; i++)
      ir_store(b, emit_expr(&d.walker, e->p->shared[i]), shared_at(e, i, group, vectors.index), 8, false);
    ir_end_for(b, vectors);
  }
}

static ir_value entry_at(attention_emitter *e, int entry, int group) {
  return ir_offset_const(e->b, e->entry_table, ((int64_t)entry * e->grid.groups + group) * table_bytes(e));
}

/* A block's matrix at every displacement of the run. */
static void emit_entries(attention_emitter *e, delta_emitter *d) {
  ir *b = e->b;
  for (int group = 0; group < e->grid.groups; group++) {
    ir_loop vectors = ir_for(b, e->zero, i64(b, e->grid.vectors));
    d->walker.varying = delta_memo(e);
    for (int i = 0; i < e->p->n_shared; i++) {
      const expr *x = e->p->shared[i];
      expr_known(&d->walker, x)->hi = ir_load(b, ir_vector(b, e->shape.lanes, x->is_f32 ? b->f32 : b->f64),
                                              shared_at(e, i, group, vectors.index), 8);
    }
    for (int i = 0; i < e->p->n_entries; i++)
      ir_store(b, emit_expr_f32(&d->walker, e->p->entry[i]),
               ir_offset(b, entry_at(e, i, group), attention_mul(b, vectors.index, e->shape.lanes * 4)), 4, false);
    ir_end_for(b, vectors);
  }
}

/* Keys [begin, end) of the tile, one run, for one block. */
static void emit_turned_keys(attention_emitter *e, const key_tile *t, const block_rows *block, ir_value begin,
                             ir_value end) {
  ir *b = e->b;
  int n = e->p->spec->n_components;
  ir_loop keys = ir_for(b, begin, end);
  ir_value column = sub(b, i64(b, e->grid.segment - 1), sub(b, keys.index, begin)), k[SPEC_MAX_BLADES];
  emit_key_components(e, t, block, keys.index, k);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES] = {{NULL}}, tabled[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
    for (int i = 0; i < e->p->n_entries; i++) {
      ir_value at = ir_offset(b, entry_at(e, i, group_of(&e->grid, x)), attention_mul(b, column, 4));
      tabled[i] = ir_load(b, e->lanes, ir_offset_const(b, at, lane_offset(e, x)), 4);
    }
    for (int i = 0; i < n * n; i++)
      if (e->p->entry_of[i] >= 0) entry[i] = tabled[e->p->entry_of[i]];
    emit_turned_score(e, keys.index, x, entry, block, k);
  }
  ir_end_for(b, keys);
}

void emit_grid_rotations(attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  ir_loop runs = ir_for(b, e->zero, run_count(e, t));
  ir_value begin = attention_mul(b, runs.index, e->grid.segment),
           end = smaller(b, attention_add(b, begin, i64(b, e->grid.segment)), t->count);
  emit_shared(e, attention_add(b, t->first, begin));
  ir_loop blocks = ir_for(b, e->zero, i64(b, e->p->spec->n_blocks));
  block_rows block;
  emit_block_rows(e, blocks.index, &block);
  delta_emitter d = delta_emitter_create(e, delta_memo(e));
  d.block = blocks.index;
  for (int i = 0; i < e->p->n_entries; i++) emit_expr_fixed(&d.walker, e->p->entry[i]);
  emit_entries(e, &d);
  emit_turned_keys(e, t, &block, begin, end);
  ir_end_for(b, blocks);
  ir_end_for(b, runs);
}
