/* cpu/attention/key_sums: see cpu/attention/key_sums.h.
 *
 * The transpose of the product that makes scores: weights are read as scalars along a row of queries and spread over
 * the lanes, rows of queries stand in memory as they came. A tile of keys is as short a sum as it has queries, so the
 * sums stay in memory between tiles and come into registers for a group of keys and two registers of channels.
 */
#include "cpu/attention/key_sums.h"

#include "mlir/arith.h"

enum { CHANNEL_VECTORS = 2, UNROLLED = 4, MOST_SUMS = ATTENTION_MAX_ROWS * CHANNEL_VECTORS };

typedef struct key_group {
  const attention_emitter *e;
  ir_value weight[ATTENTION_MAX_ROWS]; /* rows of the keys */
  ir_value rows;                       /* of the queries, at the group's channels */
  int pitch, n, vectors;
  bool guarded;
} key_group;

/* sums += weight x of one query. */
static void emit_query(const key_group *g, ir_value query, ir_value *sums) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  ir_value row = ir_offset(b, g->rows, attention_mul(b, query, (int64_t)g->pitch * 4)), x[CHANNEL_VECTORS],
           at = attention_mul(b, query, 4), zero = ir_float(b, e->lanes, 0);
  for (int v = 0; v < g->vectors; v++)
    x[v] = ir_load(b, e->lanes, ir_offset_const(b, row, (int64_t)v * e->shape.lanes * 4), 4);
  for (int r = 0; r < g->n; r++) {
    ir_value w = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset(b, g->weight[r], at), 4));
    for (int v = 0; v < g->vectors; v++) {
      ir_value *sum = &sums[r * g->vectors + v], next = attention_multiply_add(b, w, x[v], *sum);
      *sum = g->guarded ? ir_select(b, ir_compare_float(b, "une", w, zero), next, *sum) : next;
    }
  }
}

/* Sums of n keys from `key` of the tile on; those past its end go nowhere. */
static void emit_group(key_group *g, const key_tile *t, ir_value weights, ir_value key, ir_value sums,
                       ir_value nowhere) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  int count = g->n * g->vectors, step = g->guarded ? 1 : UNROLLED;
  ir_value given = ATTENTION_TILE(e, queries, b->i64), turns = attention_groups(b, given, step);
  ir_value to[ATTENTION_MAX_ROWS], values[MOST_SUMS], now[MOST_SUMS];
  for (int r = 0; r < g->n; r++) {
    ir_value row = add(b, key, i64(b, r));
    g->weight[r] = attention_at(e, weights, row, 0);
    ir_value there = ir_offset(b, sums, attention_mul(b, add(b, t->first, row), (int64_t)g->pitch * 4));
    to[r] = r ? ir_select(b, ir_compare_int(b, "slt", row, t->count), there, nowhere) : there;
    for (int v = 0; v < g->vectors; v++)
      values[r * g->vectors + v] = ir_load(b, e->lanes, ir_offset_const(b, to[r], (int64_t)v * e->shape.lanes * 4), 4);
  }
  ir_loop queries = ir_for_with(b, e->zero, turns, count, values, now);
  ir_value query = attention_mul(b, queries.index, step);
  for (int i = 0; i < step; i++) emit_query(g, add(b, query, i64(b, i)), now);
  ir_end_for_with(b, queries, count, now, values);
  for (int i = 0; i < count; i++)
    ir_store(b, values[i], ir_offset_const(b, to[i / g->vectors], (int64_t)(i % g->vectors) * e->shape.lanes * 4), 4,
             false);
}

/* Channels [channel, channel + vectors lanes) (i64) of all keys of the tile. */
static void emit_channels(const attention_emitter *e, const key_tile *t, ir_value weights, const query_rows *rows,
                          ir_value sums, ir_value channel, int vectors, bool guarded) {
  ir *b = e->b;
  int n = guarded ? 1 : e->shape.rows;
  ir_value offset = attention_mul(b, channel, 4);
  key_group g = {.e = e,
                 .rows = ir_offset(b, rows->room, offset),
                 .pitch = rows->pitch,
                 .n = n,
                 .vectors = vectors,
                 .guarded = guarded};
  ir_value groups = attention_groups(b, t->count, n);
  ir_loop keys = ir_for(b, e->zero, groups);
  ir_value to = ir_offset(b, sums, offset);
  emit_group(&g, t, weights, attention_mul(b, keys.index, n), to, rows->nowhere);
  ir_end_for(b, keys);
}

static void emit_all(const attention_emitter *e, const key_tile *t, ir_value weights, const query_rows *rows,
                     ir_value sums, bool guarded) {
  ir *b = e->b;
  int step = CHANNEL_VECTORS * e->shape.lanes, whole = rows->pitch / step;
  ir_loop channels = ir_for(b, e->zero, i64(b, whole));
  emit_channels(e, t, weights, rows, sums, attention_mul(b, channels.index, step), CHANNEL_VECTORS, guarded);
  ir_end_for(b, channels);
  if (rows->pitch > whole * step)
    emit_channels(e, t, weights, rows, sums, i64(b, (int64_t)whole * step), rows->pitch / e->shape.lanes % 2, guarded);
}

void emit_key_sums(const attention_emitter *e, const key_tile *t, ir_value weights, const query_rows *rows,
                   ir_value sums, ir_value guarded) {
  ir *b = e->b;
  ir_branch branch = ir_if(b, guarded);
  emit_all(e, t, weights, rows, sums, true);
  ir_else(b, &branch);
  emit_all(e, t, weights, rows, sums, false);
  ir_end_if(b, (ir_branch){branch.outer, {NULL}});
}
