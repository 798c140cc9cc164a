/* cpu/attention/key_sums: see cpu/attention/key_sums.h.
 *
 * Gradients of keys and values are the transpose of the product that makes scores. Weights are read as scalars along a
 * row of queries and spread over the lanes, and rows of queries stand in memory as they came. A tile of keys is as
 * short a sum as it has queries. So the sums stay in memory between tiles and come into registers for a group of keys
 * and two registers of channels. One function of the module serves gradients of values and then of keys, where their
 * rows are as long. Gradients of queries come with the two sides exchanged. Where only four of a group of eight are
 * left, those alone are summed. What else it depends on (lanes, rows of a group, numbers of a row of weights) is the
 * target's: tiles of all plans share it, wide and narrow.
 */
#include "cpu/attention/key_sums.h"

#include "cpu/attention/dots.h"
#include "mlir/arith.h"

enum { CHANNEL_VECTORS = 2, UNROLLED = 4, HALVED = 8, MOST_SUMS = ATTENTION_MAX_ROWS * CHANNEL_VECTORS };

/* Who gains, and of whom: `count` rows of sums, from the tile's first one on, of `others` rows, `stride` bytes apart.
 */
typedef struct sums_of_tile {
  const attention_emitter *e;
  bool of_queries; /* they gain of keys; else keys of queries */
  int pitch;
  ir_value weights, rows, stride, nowhere, sums, count, others, ahead;
} sums_of_tile;

typedef struct sum_group {
  const sums_of_tile *of;
  ir_value weight[ATTENTION_MAX_ROWS]; /* of each row, and the first of the others */
  ir_value rows;                       /* of the others, at the group's channels */
  int n, vectors;
  bool guarded;
} sum_group;

/* Bytes between weights of neighbours among those that gain, and among the others, or pairs of these. */
static int64_t gaining_step(const sums_of_tile *of) {
  return of->of_queries ? 4 : of->e->shape.queries * 4 / attention_step(of->e);
}
static int64_t other_step(const sums_of_tile *of) { return of->of_queries ? of->e->shape.queries * 4 : 4; }

/* sums += weight x of one of the others. */
static void emit_other(const sum_group *g, ir_value other, ir_value *sums) {
  const attention_emitter *e = g->of->e;
  ir *b = e->b;
  ir_value row = ir_offset(b, g->rows, mul(b, other, g->of->stride)), x[CHANNEL_VECTORS],
           at = attention_mul(b, other, other_step(g->of));
  for (int v = 0; v < g->vectors; v++)
    x[v] = ir_load(b, e->lanes, ir_offset_const(b, row, (int64_t)v * e->shape.lanes * 4), 4);
  for (int r = 0; r < g->n; r++) {
    ir_value w = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset(b, g->weight[r], at), 4));
    for (int v = 0; v < g->vectors; v++) {
      ir_value *sum = &sums[r * g->vectors + v];
      *sum = g->guarded ? attention_guarded_product(e, x[v], w, *sum) : attention_product(e, w, x[v], *sum);
    }
  }
}

/* Sums of n rows from `first` on, at the group's channels; those past the end go nowhere. */
static void emit_group(sum_group *g, ir_value first, ir_value sums) {
  const sums_of_tile *of = g->of;
  const attention_emitter *e = of->e;
  ir *b = e->b;
  int count = g->n * g->vectors, step = g->guarded || of->of_queries ? 1 : UNROLLED;
  ir_value turns = attention_groups(b, of->others, step);
  ir_value to[ATTENTION_MAX_ROWS], values[MOST_SUMS], now[MOST_SUMS];
  for (int r = 0; r < g->n; r++) {
    ir_value row = add(b, first, i64(b, r));
    g->weight[r] = nth(b, of->weights, row, gaining_step(of));
    ir_value there = nth(b, sums, row, (int64_t)of->pitch * 4);
    to[r] = r ? ir_select(b, ir_compare_int(b, "slt", row, of->count), there, of->nowhere) : there;
    for (int v = 0; v < g->vectors; v++)
      values[r * g->vectors + v] = ir_load(b, e->lanes, ir_offset_const(b, to[r], (int64_t)v * e->shape.lanes * 4), 4);
  }
  ir_loop others = ir_for_with(b, e->zero, turns, count, values, now);
  ir_value other = attention_mul(b, others.index, step);
  for (int i = 0; i < step; i++) emit_other(g, add(b, other, i64(b, i)), now);
  ir_end_for_with(b, others, count, now, values);
  for (int i = 0; i < count; i++)
    ir_store(b, values[i], ir_offset_const(b, to[i / g->vectors], (int64_t)(i % g->vectors) * e->shape.lanes * 4), 4,
             false);
}

/* Groups [0, groups) of n rows from `first` on, at channels that begin `offset` bytes into a row. */
static void emit_groups(const sums_of_tile *of, ir_value first, ir_value groups, int n, ir_value offset, int vectors,
                        bool guarded) {
  ir *b = of->e->b;
  sum_group g = {.of = of, .rows = ir_offset(b, of->rows, offset), .n = n, .vectors = vectors, .guarded = guarded};
  ir_loop loop = ir_for(b, of->e->zero, groups);
  if (!guarded) emit_ahead(of->e, of->ahead);
  ir_value to = ir_offset(b, of->sums, offset), row = add(b, first, attention_mul(b, loop.index, n));
  emit_group(&g, row, to);
  ir_end_for(b, loop);
}

/* Channels [channel, channel + vectors lanes) (i64) of all rows of the tile. */
static void emit_channels(const sums_of_tile *of, ir_value channel, int vectors, bool guarded) {
  ir *b = of->e->b;
  int n = of->e->shape.rows, half = n / 2;
  ir_value offset = attention_mul(b, channel, 4), zero = of->e->zero;
  if (guarded || n < HALVED) {
    int of_group = guarded ? 1 : n;
    emit_groups(of, zero, attention_groups(b, of->count, of_group), of_group, offset, vectors, guarded);
    return;
  }
  ir_value groups = ir_op2(b, "arith.divui", add(b, of->count, i64(b, n - half - 1)), i64(b, n));
  ir_value behind = attention_mul(b, groups, n), left = larger(b, sub(b, of->count, behind), zero);
  emit_groups(of, zero, groups, n, offset, vectors, false);
  emit_groups(of, behind, smaller(b, left, i64(b, 1)), half, offset, vectors, false);
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

static const char *name_of(const attention_emitter *e, bool of_queries, int pitch) {
  const char *pairs = e->dots ? "pairs_" : "";
  return arena_printf(e->memory, "%s_sums_%s%s_%d", of_queries ? "query" : "key", pairs, e->target->suffix, pitch);
}

enum { ARGUMENTS = 10 };

/* key_sums_T_PITCH, query_sums_T_PITCH (weights, rows, stride, nowhere, sums, count, others, tile, state, guarded) */
static void emit_function(attention_emitter of_module, bool of_queries, int pitch) {
  ir *b = of_module.b;
  ir_value x[ARGUMENTS];
  ir_open(b, name_of(&of_module, of_queries, pitch), "ppippiippb", x);
  of_module.zero = i64(b, 0);
  of_module.tile = x[7];
  sums_of_tile of = {&of_module, of_queries, pitch, x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[8]};
  if (!of_queries) of.stride = i64(b, (int64_t)pitch * 4);
  ir_branch branch = ir_if(b, x[9]);
  emit_all(&of, true);
  ir_else(b, &branch);
  emit_all(&of, false);
  ir_end_if(b, (ir_branch){branch.outer, {NULL}});
  ir_return(b);
}

bool query_sums_by_channels(const attention_emitter *e) {
  return e->dots || (!e->p->matrix && attention_pitch(e->p->head_dim) == e->p->head_dim);
}

void emit_key_sums_functions(const attention_emitter *e) {
  int keys = attention_pitch(e->p->head_dim), values = attention_pitch(e->p->value_dim);
  emit_function(*e, false, values);
  if (keys != values) emit_function(*e, false, keys); /* of pairs that are turned, by tokens that are not */
  if (query_sums_by_channels(e)) emit_function(*e, true, keys);
}

void emit_key_sums(const attention_emitter *e, const key_tile *t, ir_value weights, const query_rows *rows,
                   ir_value sums, ir_value guarded) {
  ir *b = e->b;
  ir_value first = nth(b, sums, t->first, (int64_t)rows->pitch * 4),
           queries = attention_steps(e, ATTENTION_TILE(e, queries, b->i64)), stride = i64(b, (int64_t)rows->pitch * 4);
  ir_value x[ARGUMENTS] = {weights,  rows->room, stride,  rows->nowhere, first,
                           t->count, queries,    e->tile, t->ahead,      guarded};
  ir_call(b, name_of(e, false, rows->pitch), ARGUMENTS, x);
}

void emit_query_sums(const attention_emitter *e, const key_tile *t, ir_value weights, const query_rows *sums,
                     ir_value guarded) {
  ir *b = e->b;
  ir_value queries = ATTENTION_TILE(e, queries, b->i64), keys = attention_steps(e, t->count);
  ir_value x[ARGUMENTS] = {weights, t->rows, t->stride, sums->nowhere, sums->room,
                           queries, keys,    e->tile,   t->ahead,      guarded};
  ir_call(b, name_of(e, true, sums->pitch), ARGUMENTS, x);
}
