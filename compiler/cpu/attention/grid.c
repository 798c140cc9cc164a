/* cpu/attention/grid: pair functions on the built-in grid, tabulated along its last axis; see
 * cpu/attention/grid.h.
 *
 * On a grid of W columns a row of keys and a register of neighbouring queries have no more than W + lanes - 1
 * displacements, and every pair of theirs is one of them. So for each run of keys (a row of the grid, or a segment of
 * one) a bias, or each distinct entry of a block's matrix, is computed once per displacement into a table that stays in
 * the nearest cache, and a pair's value is a load. Tables run against the displacement, in the direction of the
 * queries: entry u is of the displacement (first key - first query) + segment - 1 - u, and lanes read neighbours.
 *
 * Nothing is kept from tile to tile: no memory grows with the grid.
 */
#include "cpu/attention/grid.h"

#include "cpu/attention/blocks.h"
#include "cpu/attention/delta.h"
#include "mlir/arith.h"

/* Bytes of the tables of entries, which stay in the nearest cache. */
enum { TABLE_ROOM = 16384 };

static int64_t width_of(const attention_plan *p) { return p->spec->grid[p->spec->n_axes - 1]; }

/* ---- shapes ---- */

static grid_shape grid_shape_of(const attention_plan *p, const attention_shape *s) {
  int64_t width = width_of(p);
  grid_shape g = {.width = width};
  g.segments = (int)((width + s->keys - 1) / s->keys);
  g.segment = (int)((width + g.segments - 1) / g.segments);
  g.runs = g.segments > 1 ? 1 : (int)(s->keys / width);
  /* Where a tile's registers are neighbours in one row of the grid, they share a table. */
  g.is_shared = width % s->queries == 0;
  g.groups = g.is_shared ? 1 : s->vectors;
  g.vectors = ((g.is_shared ? s->queries : s->lanes) + g.segment - 1 + s->lanes - 1) / s->lanes;
  if (!p->matrix) return g;
  /* The fewest parts of equal size that the room allows. */
  int64_t block = (int64_t)p->n_entries * g.groups * g.vectors * s->lanes * 4, most = TABLE_ROOM / block;
  int n = p->spec->n_blocks, parts = most < 1 ? n : (int)((n + most - 1) / most);
  g.blocks = (n + parts - 1) / parts;
  g.keys = s->rows >= 8 ? 4 : 2; /* the block's queries, the key and the entries take the other registers */
  return g;
}

static int group_of(const grid_shape *g, int vector) { return g->is_shared ? 0 : vector; }

/* Where the lanes of a register begin in its group's tables, in bytes. */
static int64_t lane_offset(const grid_emitter *g, int vector) {
  return g->shape.is_shared ? (int64_t)vector * g->e->shape.lanes * 4 : 0;
}

static int64_t table_bytes(const grid_emitter *g) { return (int64_t)g->shape.vectors * g->e->shape.lanes * 4; }

/* Tables of a block's entries, [entry][group]. */
static int64_t block_bytes(const grid_emitter *g) {
  return (int64_t)g->e->p->n_entries * g->shape.groups * table_bytes(g);
}

/* ---- tiles of keys: whole runs ---- */

int64_t attention_key_step(const attention_plan *p, const attention_shape *s) {
  if (!p->by_rows) return s->keys;
  grid_shape g = grid_shape_of(p, s);
  return g.segments == 1 ? g.runs * g.width : g.width;
}

void emit_grid_segments(const grid_emitter *g, key_tile t, emit_key_tile_function *visit, void *context) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  ir_value whole = t.count, width = i64(b, g->shape.width);
  ir_loop segments = ir_for(b, e->zero, i64(b, g->shape.segments));
  ir_value column = attention_mul(b, segments.index, g->shape.segment);
  t.first = add(b, t.first, column);
  t.count = smaller(b, sub(b, whole, column), smaller(b, i64(b, g->shape.segment), sub(b, width, column)));
  ir_branch some = ir_if(b, ir_compare_int(b, "sgt", t.count, e->zero)); /* causal queries end inside a row */
  visit(context, &t);
  ir_end_if(b, some);
  ir_end_for(b, segments);
}

/* ---- displacements of a run ---- */

/* Coordinates of a run's first key less those of a group's first query, float64 scalars. */
static void emit_corner(const attention_emitter *e, ir_value key, int group, ir_value *corner) {
  ir *b = e->b;
  const spec *s = e->p->spec;
  ir_value rest = sub(b, key, i64(b, s->skip_tokens));
  for (int axis = s->n_axes - 1; axis >= 0; axis--) {
    ir_value size = i64(b, s->grid[axis]), coordinate = axis ? ir_op2(b, "arith.remui", rest, size) : rest;
    int64_t at = (int64_t)offsetof(pegen_attention_tile, positions) +
                 ((int64_t)axis * PEGEN_ATTENTION_QUERIES + (int64_t)group * e->shape.lanes) * 8;
    corner[axis] =
        sub(b, ir_cast(b, "arith.sitofp", coordinate, b->f64), ir_load(b, b->f64, ir_offset_const(b, e->tile, at), 8));
    if (axis) rest = ir_op2(b, "arith.divui", rest, size);
  }
}

/* Displacements of the lanes of vector `index` (i64) of a table. */
static void emit_displacements(const grid_emitter *g, const ir_value *corner, ir_value index, ir_value *wide) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  int axes = e->p->spec->n_axes, lanes = e->shape.lanes;
  MlirType type = ir_vector(b, lanes, b->f64);
  double against[64];
  for (int i = 0; i < lanes; i++) against[i] = g->shape.segment - 1 - i;
  for (int axis = 0; axis < axes; axis++) wide[axis] = ir_broadcast(b, type, corner[axis]);
  ir_value behind = ir_cast(b, "arith.sitofp", attention_mul(b, index, -lanes), b->f64);
  ir_value steps = add(b, ir_floats(b, type, against), ir_broadcast(b, type, behind));
  wide[axes - 1] = add(b, wide[axes - 1], steps);
}

/* ---- a bias ---- */

grid_emitter emit_grid_begin(const attention_emitter *e, two_float *fixed) {
  ir *b = e->b;
  grid_emitter grid = {.e = e, .shape = grid_shape_of(e->p, &e->shape), .fixed = fixed}, *g = &grid;
  int64_t runs = g->shape.runs, groups = g->shape.groups;
  if (e->p->bias) {
    g->bias_table = ir_alloca(b, runs * groups * table_bytes(g), 64);
    g->bias_at = ir_alloca(b, (int64_t)(e->shape.keys + e->shape.rows) * 8, 64);
    /* Where a key's values begin in the tables: the same for all tiles. Keys past the end read inside the last run's.
     */
    ir_loop keys = ir_for(b, e->zero, i64(b, e->shape.keys + e->shape.rows));
    ir_value run = smaller(b, ir_op2(b, "arith.divui", keys.index, i64(b, g->shape.segment)), i64(b, runs - 1));
    ir_value column =
        smaller(b, sub(b, keys.index, attention_mul(b, run, g->shape.segment)), i64(b, g->shape.segment - 1));
    ir_value at = add(b, attention_mul(b, run, groups * table_bytes(g)),
                      attention_mul(b, sub(b, i64(b, g->shape.segment - 1), column), 4));
    ir_store(b, at, nth(b, g->bias_at, keys.index, 8), 8, false);
    ir_end_for(b, keys);
  }
  if (!e->p->matrix) return grid;
  g->entry_table = ir_alloca(b, g->shape.blocks * block_bytes(g), 64);
  g->shared_table = ir_alloca(b, (int64_t)(e->p->n_shared + 1) * groups * table_bytes(g) * 2, 64);
  return grid;
}

/* Runs of a tile of keys. */
static ir_value run_count(const grid_emitter *g, const key_tile *t) {
  const attention_emitter *e = g->e;
  return attention_groups(e->b, t->count, g->shape.segment);
}

/* A run's table of a group. */
static ir_value table_at(const grid_emitter *g, ir_value tables, ir_value run, int group) {
  ir *b = g->e->b;
  ir_value index = add(b, attention_mul(b, run, g->shape.groups), i64(b, group));
  return nth(b, tables, index, table_bytes(g));
}

ir_value emit_grid_sums_room(const grid_emitter *g) {
  return ir_alloca(g->e->b, (int64_t)g->shape.runs * g->shape.groups * table_bytes(g), CACHE_LINE);
}

/* Where a key and the queries of a register find their displacements in tables. */
static ir_value bias_at(const grid_emitter *g, ir_value tables, ir_value key, int vector) {
  ir *b = g->e->b;
  ir_value at = ir_load(b, b->i64, nth(b, g->bias_at, key, 8), 8);
  int64_t group = group_of(&g->shape, vector) * table_bytes(g);
  return ir_offset_const(b, ir_offset(b, tables, at), group + lane_offset(g, vector));
}

static void sum_by_displacement(const grid_emitter *g, const key_tile *t, ir_value numbers, ir_value room) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  int64_t registers = (int64_t)g->shape.runs * g->shape.groups * g->shape.vectors;
  ir_loop clear = ir_for(b, e->zero, i64(b, registers));
  ir_store(b, ir_float(b, e->lanes, 0), nth(b, room, clear.index, e->shape.lanes * 4), 4, false);
  ir_end_for(b, clear);
  ir_loop keys = ir_for(b, e->zero, t->count);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value at = bias_at(g, room, keys.index, x),
             more = ir_load(b, e->lanes, attention_at(e, numbers, keys.index, x), 4);
    ir_store(b, add(b, ir_load(b, e->lanes, at, 4), more), at, 4, false);
  }
  ir_end_for(b, keys);
}

/* What is done at a register of displacements; `at`: its place in the tables. */
typedef void at_displacements(const grid_emitter *g, void *context, delta_emitter *d, ir_value at);

static void walk_displacements(const grid_emitter *g, const key_tile *t, ir_value tables, at_displacements *visit,
                               void *context) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  ir_loop runs = ir_for(b, e->zero, run_count(g, t));
  ir_value key = add(b, t->first, attention_mul(b, runs.index, g->shape.segment));
  for (int group = 0; group < g->shape.groups; group++) {
    ir_value corner[SPEC_MAX_AXES], wide[SPEC_MAX_AXES], narrow[SPEC_MAX_AXES];
    emit_corner(e, key, group, corner);
    ir_value table = table_at(g, tables, runs.index, group);
    ir_loop vectors = ir_for(b, e->zero, i64(b, g->shape.vectors));
    emit_displacements(g, corner, vectors.index, wide);
    for (int axis = 0; axis < e->p->spec->n_axes; axis++) narrow[axis] = ir_cast(b, "arith.truncf", wide[axis], b->f32);
    delta_emitter d = delta_emitter_at(e, g->fixed, narrow);
    visit(g, context, &d, nth(b, table, vectors.index, e->shape.lanes * 4));
    ir_end_for(b, vectors);
  }
  ir_end_for(b, runs);
}

typedef struct visitor_of {
  emit_displacement_visitor *visitor;
  void *context;
} visitor_of;

static void visit_sums(const grid_emitter *g, void *context, delta_emitter *d, ir_value at) {
  const visitor_of *v = context;
  d->cotangent = ir_load(g->e->b, g->e->lanes, at, 4);
  v->visitor(v->context, d);
}

void emit_grid_sums(const grid_emitter *g, const key_tile *t, ir_value numbers, ir_value room,
                    emit_displacement_visitor *visitor, void *context) {
  visitor_of v = {visitor, context};
  sum_by_displacement(g, t, numbers, room);
  walk_displacements(g, t, room, visit_sums, &v);
}

static void store_bias(const grid_emitter *g, void *context, delta_emitter *d, ir_value at) {
  (void)context;
  ir_store(g->e->b, emit_expr_f32(&d->walker, g->e->p->bias), at, 4, false);
}

void emit_grid_bias_table(const grid_emitter *g, const key_tile *t) {
  walk_displacements(g, t, g->bias_table, store_bias, NULL);
}

ir_value emit_grid_bias(const grid_emitter *g, ir_value key, int vector) {
  const attention_emitter *e = g->e;
  return ir_load(e->b, e->lanes, bias_at(g, g->bias_table, key, vector), 4);
}

/* ---- rotations ---- */

/* Where shared value `index` of a group's vector lies; all have room for float64. */
static ir_value shared_at(const grid_emitter *g, int index, int group, ir_value vector) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  int64_t table = ((int64_t)index * g->shape.groups + group) * table_bytes(g) * 2;
  return nth(b, ir_offset_const(b, g->shared_table, table), vector, e->shape.lanes * 8);
}

/* What all blocks share of a run: distances and directions. */
static void emit_shared(const grid_emitter *g, ir_value key) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  for (int group = 0; group < g->shape.groups; group++) {
    ir_value corner[SPEC_MAX_AXES], wide[SPEC_MAX_AXES];
    emit_corner(e, key, group, corner);
    ir_loop vectors = ir_for(b, e->zero, i64(b, g->shape.vectors));
    emit_displacements(g, corner, vectors.index, wide);
    delta_emitter d = delta_emitter_create(e, delta_memo(e));
    d.walker.varying = delta_memo(e);
    d.wide = wide;
    for (int i = 0; i < e->p->n_shared; i++)
      ir_store(b, emit_expr(&d.walker, e->p->shared[i]), shared_at(g, i, group, vectors.index), 8, false);
    ir_end_for(b, vectors);
  }
}

static int64_t entry_offset(const grid_emitter *g, int entry, int group) {
  return ((int64_t)entry * g->shape.groups + group) * table_bytes(g);
}

/* A block's entries at every displacement of the run. */
static void emit_entries(const grid_emitter *g, delta_emitter *d, ir_value tables) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  for (int group = 0; group < g->shape.groups; group++) {
    ir_loop vectors = ir_for(b, e->zero, i64(b, g->shape.vectors));
    d->walker.varying = delta_memo(e);
    for (int i = 0; i < e->p->n_shared; i++) {
      const expr *x = e->p->shared[i];
      expr_known(&d->walker, x)->hi = ir_load(b, ir_vector(b, e->shape.lanes, x->is_f32 ? b->f32 : b->f64),
                                              shared_at(g, i, group, vectors.index), 8);
    }
    for (int i = 0; i < e->p->n_entries; i++) {
      ir_value at = ir_offset_const(b, nth(b, tables, vectors.index, e->shape.lanes * 4), entry_offset(g, i, group));
      ir_store(b, emit_expr_f32(&d->walker, e->p->entry[i]), at, 4, false);
    }
    ir_end_for(b, vectors);
  }
}

/* Tables of blocks [first, end). */
static void emit_tables(const grid_emitter *g, ir_value first, ir_value end) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  ir_loop blocks = ir_for(b, first, end);
  delta_emitter d = delta_emitter_create(e, delta_memo(e));
  d.block = blocks.index;
  for (int i = 0; i < e->p->n_entries; i++) emit_expr_fixed(&d.walker, e->p->entry[i]);
  emit_entries(g, &d, ir_offset(b, g->entry_table, mul(b, sub(b, blocks.index, first), i64(b, block_bytes(g)))));
  ir_end_for(b, blocks);
}

/* from: the tables, as far on as the key's column. */
static void load_entries(const grid_emitter *g, ir_value from, int vector, ir_value *entry) {
  const attention_emitter *e = g->e;
  for (int i = 0; i < e->p->n_entries; i++) {
    int64_t at = entry_offset(g, i, group_of(&g->shape, vector)) + lane_offset(g, vector);
    entry[i] = ir_load(e->b, e->lanes, ir_offset_const(e->b, from, at), 4);
  }
}

ir_value emit_grid_block_tables(const grid_emitter *g, const grid_part *part, ir_value block) {
  ir *b = g->e->b;
  return ir_offset(b, g->entry_table, mul(b, sub(b, block, part->first), i64(b, block_bytes(g))));
}

void emit_grid_entry(const grid_emitter *g, ir_value tables, ir_value key, int vector, ir_value *entry) {
  ir *b = g->e->b;
  ir_value column = attention_mul(b, sub(b, i64(b, g->shape.segment - 1), key), 4);
  load_entries(g, ir_offset(b, tables, column), vector, entry);
}

/* Keys whose scores are summed together: where they stand in the tile, their rows, and where the first lane of the
 * first register finds their displacements in a table. */
typedef struct turned_keys {
  ir_value key[ATTENTION_MAX_SUMS], row[ATTENTION_MAX_SUMS], column[ATTENTION_MAX_SUMS];
} turned_keys;

/* One block's part of their scores, [key][vector]. */
static void emit_turned_block(const grid_emitter *g, const attention_emitter *e, const turned_keys *keys,
                              ir_value index, ir_value tables, ir_value *sums) {
  ir *b = e->b;
  int vectors = e->shape.vectors;
  block_rows block;
  emit_block_rows(e, index, &block);
  for (int r = 0; r < g->shape.keys; r++) {
    ir_value k[SPEC_MAX_BLADES], from = ir_offset(b, tables, keys->column[r]);
    emit_key_components(e, keys->row[r], &block, k);
    for (int x = 0; x < vectors; x++) {
      ir_value entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES], *sum = &sums[r * vectors + x];
      load_entries(g, from, x, entry);
      *sum = emit_turned_score(e, entry, block.q[x], k, *sum);
    }
  }
}

/* Adds blocks [first, end) to the scores of a run's keys [begin, last]. A key past the run's end is the last one again,
 * and writes the same score to the same place. */
static void emit_turned_keys(const grid_emitter *g, const attention_emitter *e, const key_tile *t, ir_value begin,
                             ir_value last, ir_value first, ir_value end) {
  ir *b = e->b;
  int n = g->shape.keys, vectors = e->shape.vectors, count = n * vectors;
  ir_value groups = ir_op2(b, "arith.divui", add(b, sub(b, last, begin), i64(b, n)), i64(b, n));
  ir_loop loop = ir_for(b, e->zero, groups);
  turned_keys keys;
  ir_value sums[ATTENTION_MAX_SUMS], now[ATTENTION_MAX_SUMS];
  for (int r = 0; r < n; r++) {
    ir_value key = add(b, begin, add(b, attention_mul(b, loop.index, n), i64(b, r)));
    keys.key[r] = key = smaller(b, key, last);
    keys.row[r] = ir_offset(b, t->rows, mul(b, key, t->stride));
    keys.column[r] = attention_mul(b, sub(b, i64(b, g->shape.segment - 1), sub(b, key, begin)), 4);
    for (int x = 0; x < vectors; x++)
      sums[r * vectors + x] = ir_load(b, e->lanes, attention_at(e, t->scores, key, x), 4);
  }
  ir_loop blocks = ir_for_with(b, first, end, count, sums, now);
  ir_value tables = ir_offset(b, g->entry_table, mul(b, sub(b, blocks.index, first), i64(b, block_bytes(g))));
  emit_turned_block(g, e, &keys, blocks.index, tables, now);
  ir_end_for_with(b, blocks, count, now, sums);
  for (int r = 0; r < n; r++)
    for (int x = 0; x < vectors; x++)
      ir_store(b, sums[r * vectors + x], attention_at(e, t->scores, keys.key[r], x), 4, false);
  ir_end_for(b, loop);
}

void emit_grid_parts(const grid_emitter *g, const key_tile *t, emit_grid_part_visitor *visit, void *context) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  int n = e->p->spec->n_blocks, part = g->shape.blocks;
  grid_part at;
  ir_loop runs = ir_for(b, e->zero, run_count(g, t));
  at.begin = attention_mul(b, runs.index, g->shape.segment);
  at.last = sub(b, smaller(b, add(b, at.begin, i64(b, g->shape.segment)), t->count), i64(b, 1));
  emit_shared(g, add(b, t->first, at.begin));
  ir_loop parts = ir_for(b, e->zero, i64(b, (n + part - 1) / part));
  at.first = attention_mul(b, parts.index, part);
  at.end = smaller(b, add(b, at.first, i64(b, part)), i64(b, n));
  emit_tables(g, at.first, at.end);
  visit(context, &at);
  ir_end_for(b, parts);
  ir_end_for(b, runs);
}

typedef struct turned_part {
  const grid_emitter *g;
  const key_tile *t;
} turned_part;

static void visit_scores(void *context, const grid_part *part) {
  const turned_part *of = context;
  const attention_emitter *e = of->g->e;
  head_loop heads = attention_heads_begin(e);
  attention_emitter of_head = attention_emitter_of_head(e, &heads);
  key_tile own = key_tile_of_head(e, &heads, of->t);
  emit_turned_keys(of->g, &of_head, &own, part->begin, part->last, part->first, part->end);
  attention_heads_end(e, heads);
}

void emit_grid_rotations(const grid_emitter *g, const key_tile *t) {
  emit_grid_parts(g, t, visit_scores, &(turned_part){g, t});
}
