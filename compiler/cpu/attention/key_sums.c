/* cpu/attention/key_sums: see cpu/attention/key_sums.h.
 *
 * The transpose of the product that makes scores: weights are read as scalars along a row of queries and spread over
 * the lanes, rows of queries stand in memory as they came. A tile of keys is as short a sum as it has queries, so the
 * sums stay in memory between tiles and come into registers for a group of keys and two registers of channels. Values
 * gain so, and then keys: one function of the module for both, where their rows are as long. What else it depends on
 * (lanes, keys of a group, numbers of a row of weights) is the target's, the same for tiles of all plans, wide and
 * narrow.
 */
#include "cpu/attention/key_sums.h"

#include "mlir/arith.h"

enum { CHANNEL_VECTORS = 2, UNROLLED = 4, MOST_SUMS = ATTENTION_MAX_ROWS * CHANNEL_VECTORS };

/* What one call is given: a tile of keys, `sums` from its first one on. */
typedef struct sums_of_tile {
  const attention_emitter *e;
  int pitch;
  ir_value weights, rows, nowhere, sums, count, queries;
} sums_of_tile;

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

/* Sums of n keys from `key` of the tile on, at the group's channels; those past its end go nowhere. */
static void emit_group(key_group *g, const sums_of_tile *of, ir_value key, ir_value sums) {
  const attention_emitter *e = g->e;
  ir *b = e->b;
  int count = g->n * g->vectors, step = g->guarded ? 1 : UNROLLED;
  ir_value turns = attention_groups(b, of->queries, step);
  ir_value to[ATTENTION_MAX_ROWS], values[MOST_SUMS], now[MOST_SUMS];
  for (int r = 0; r < g->n; r++) {
    ir_value row = add(b, key, i64(b, r));
    g->weight[r] = attention_at(e, of->weights, row, 0);
    ir_value there = ir_offset(b, sums, attention_mul(b, row, (int64_t)g->pitch * 4));
    to[r] = r ? ir_select(b, ir_compare_int(b, "slt", row, of->count), there, of->nowhere) : there;
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
static void emit_channels(const sums_of_tile *of, ir_value channel, int vectors, bool guarded) {
  ir *b = of->e->b;
  int n = guarded ? 1 : of->e->shape.rows;
  ir_value offset = attention_mul(b, channel, 4);
  key_group g = {.e = of->e,
                 .rows = ir_offset(b, of->rows, offset),
                 .pitch = of->pitch,
                 .n = n,
                 .vectors = vectors,
                 .guarded = guarded};
  ir_value groups = attention_groups(b, of->count, n);
  ir_loop keys = ir_for(b, of->e->zero, groups);
  ir_value to = ir_offset(b, of->sums, offset);
  emit_group(&g, of, attention_mul(b, keys.index, n), to);
  ir_end_for(b, keys);
}

static void emit_all(const sums_of_tile *of, bool guarded) {
  ir *b = of->e->b;
  int lanes = of->e->shape.lanes, step = CHANNEL_VECTORS * lanes, whole = of->pitch / step;
  ir_loop channels = ir_for(b, of->e->zero, i64(b, whole));
  emit_channels(of, attention_mul(b, channels.index, step), CHANNEL_VECTORS, guarded);
  ir_end_for(b, channels);
  if (of->pitch > whole * step)
    emit_channels(of, i64(b, (int64_t)whole * step), of->pitch / lanes % CHANNEL_VECTORS, guarded);
}

static const char *name_of(const attention_emitter *e, int pitch) {
  return arena_printf(e->memory, "key_sums_%s_%d", e->target->suffix, pitch);
}

/* key_sums_T_PITCH(weights, rows, nowhere, sums, count, queries, guarded) */
static void emit_function(attention_emitter of_module, int pitch) {
  ir *b = of_module.b;
  MlirType types[] = {b->ptr, b->ptr, b->ptr, b->ptr, b->i64, b->i64, b->i1};
  ir_value given[7];
  ir_function(b, name_of(&of_module, pitch), true, (MlirType){NULL}, 7, types, given);
  of_module.zero = i64(b, 0);
  sums_of_tile of = {&of_module, pitch, given[0], given[1], given[2], given[3], given[4], given[5]};
  ir_branch branch = ir_if(b, given[6]);
  emit_all(&of, true);
  ir_else(b, &branch);
  emit_all(&of, false);
  ir_end_if(b, (ir_branch){branch.outer, {NULL}});
  ir_return(b);
}

void emit_key_sums_functions(const attention_emitter *e) {
  int keys = attention_pitch(e->p->head_dim), values = attention_pitch(e->p->value_dim);
  emit_function(*e, values);
  if (keys != values) emit_function(*e, keys); /* of pairs that are turned, by tokens that are not */
}

void emit_key_sums(const attention_emitter *e, const key_tile *t, ir_value weights, const query_rows *rows,
                   ir_value sums, ir_value guarded) {
  ir *b = e->b;
  ir_value first = ir_offset(b, sums, attention_mul(b, t->first, (int64_t)rows->pitch * 4)),
           queries = ATTENTION_TILE(e, queries, b->i64);
  ir_value arguments[] = {weights, rows->room, rows->nowhere, first, t->count, queries, guarded};
  ir_call(b, name_of(e, rows->pitch), 7, arguments);
}
