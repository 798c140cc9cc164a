/* cpu/attention/turned_gains: see cpu/attention/turned_gains.h.
 *
 * A block at a time is computed, with the queries in the lanes as where scores are made. Gradients of queries stay in
 * registers over the keys of a tile; the gradient of a key is a sum over lanes. Sums of as many keys as a register has
 * lanes are made together, pairwise: a register of them takes one addition less than it has lanes. It is a channel of
 * those keys, and channels become rows when all blocks are done.
 *
 * Channels that no pair turns are blocks of one component. Off the grid a rotation costs more than all else, and
 * whatever has S' = 0 is left out always; on it there is code for both.
 */
#include "cpu/attention/turned_gains.h"

#include "cpu/attention/blocks.h"
#include "cpu/attention/queries.h"

static const char *unturned_table(arena *a, const cpu_target *target) {
  return arena_printf(a, "unturned_%s", target->suffix);
}

static int unturned(arena *a, const attention_plan *p, int32_t **channels) {
  const spec *s = p->spec;
  bool *is_turned = arena_array(a, bool, p->head_dim);
  int count = 0;
  *channels = arena_array(a, int32_t, p->head_dim);
  for (int i = 0; i < s->n_components * s->n_blocks; i++) is_turned[s->channel[i]] = true;
  for (int c = 0; c < p->head_dim; c++)
    if (!is_turned[c]) (*channels)[count++] = c;
  return count;
}

void emit_unturned_channels(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  int32_t *channels;
  int count = p->matrix ? unturned(a, p, &channels) : 0;
  if (count) ir_table(b, unturned_table(a, target), count, NULL, channels);
}

static int up(int count, int step) { return (count + step - 1) / step * step; }

void emit_turned_gains_begin(turned_gains *s) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  int lanes = e->shape.lanes, partial = e->p->spec->n_components * lanes * lanes;
  s->channels = attention_pitch(e->p->head_dim);
  s->keys = up(e->shape.keys, lanes) + lanes; /* a run's last register may begin anywhere */
  s->partial = ir_alloca(b, (int64_t)partial * 4, CACHE_LINE);
  s->gained = ir_alloca(b, (int64_t)s->channels * s->keys * 4, CACHE_LINE);
  /* Lanes past a run's end and channels past a row's are sums that nobody reads, of numbers all the same. */
  emit_zeros(e, s->partial, partial);
  emit_zeros(e, s->gained, (int64_t)s->channels * s->keys);
}

/* ---- a block ---- */

/* Its channels and what the queries hold there: a block that is turned, or a channel that is not. */
typedef struct gaining_block {
  block_rows rows;
  int n;
  ir_value index;  /* i64, of the spec's blocks; null: not turned */
  ir_value tables; /* on the grid: its entries' */
} gaining_block;

static ir_value gained_at(const turned_gains *s, ir_value channel, ir_value key) {
  ir *b = s->pairs->e->b;
  return nth(b, s->gained, add(b, attention_mul(b, channel, s->keys), key), 4);
}

static ir_value partial_at(const turned_gains *s, int component, ir_value key) {
  ir *b = s->pairs->e->b;
  int lanes = s->pairs->e->shape.lanes;
  return nth(b, ir_offset_const(b, s->partial, (int64_t)component * lanes * lanes * 4), key, lanes * 4);
}

/* sum + x, where x counts. Where both are products, the back end chooses which of them is rounded, so guarded and
 * unguarded code would give different bits. So the first product is added to 0. */
static ir_value emit_counted(const attention_emitter *e, ir_value counts, ir_value sum, ir_value x, bool is_product) {
  ir *b = e->b;
  ir_value zero = ir_float(b, e->lanes, 0);
  if (!sum.ptr && is_product) sum = zero;
  ir_value next = sum.ptr ? add(b, sum, x) : x;
  return counts.ptr ? ir_select(b, counts, next, sum.ptr ? sum : zero) : next;
}

/* Keys at hand: the key's number in the tile, and its components. */
typedef struct key_at_hand {
  ir_value key, k[SPEC_MAX_BLADES];
} key_at_hand;

/* A key's pairs with the queries of a register: `own`, [component] of the queries, and `shared` of the key. */
static void emit_pair(const turned_gains *s, const gaining_block *block, delta_emitter *d, const ir_value *entry, int x,
                      const key_at_hand *at, ir_value gain, bool guarded, ir_value *own, ir_value *shared) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  ir_value counts = {NULL}, turned[SPEC_MAX_BLADES], back[SPEC_MAX_BLADES], q[SPEC_MAX_BLADES];
  if (guarded) counts = ir_compare_float(b, "une", gain, ir_float(b, e->lanes, 0));
  for (int i = 0; i < block->n; i++) q[i] = mul(b, gain, block->rows.q[x][i]);
  for (int i = 0; i < block->n && !block->index.ptr; i++) turned[i] = at->k[i], back[i] = q[i];
  if (block->index.ptr) {
    emit_turned_components(e, entry, at->k, false, turned);
    emit_turned_components(e, entry, q, true, back);
  }
  for (int i = 0; i < block->n; i++) {
    bool is_mirrored = block->index.ptr && e->p->mirror && e->p->entry_of[i] >= 0;
    own[i] = emit_counted(e, counts, own[i], mul(b, gain, turned[i]), true);
    shared[i] = emit_counted(e, counts, shared[i], back[i], !is_mirrored);
  }
  if (e->p->torques && d) emit_torque_sums(s->sums, d, q, turned, counts, at->key, x);
}

/* The entries of key `key` of the tile and the queries of a register; on the grid `begin` is the run's first key. */
static void emit_entries(const turned_gains *s, const gaining_block *block, delta_emitter *d, ir_value begin,
                         ir_value key, int x, ir_value *wide, ir_value *entry) {
  if (!block->index.ptr) return;
  if (block->tables.ptr) emit_grid_entry(&s->pairs->grid, block->tables, sub(s->pairs->e->b, key, begin), x, entry);
  else emit_pair_entries(s->pairs, d, key, x, wide, entry);
}

/* What a register of keys, from `first` of the tile on, gains in the block's channels. */
static void emit_sum_keys(const turned_gains *s, const gaining_block *block, ir_value first) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  ir_branch wanted = ir_if(b, s->wants_keys);
  for (int i = 0; i < block->n; i++) {
    ir_value from = partial_at(s, i, e->zero), to = gained_at(s, block->rows.channel[i], first);
    emit_lane_sums(e, from, to);
  }
  ir_end_if(b, wanted);
}

/* Keys [begin, end) of the tile. */
static void emit_block(const turned_gains *s, const key_tile *t, ir_value gains, const gaining_block *block,
                       delta_emitter *d, ir_value begin, ir_value end, bool guarded) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  int vectors = e->shape.vectors, lanes = e->shape.lanes, n = block->n, count = n * vectors;
  ir_value sums[ATTENTION_MAX_VECTORS * SPEC_MAX_BLADES], outer[ATTENTION_MAX_VECTORS * SPEC_MAX_BLADES],
      now[ATTENTION_MAX_VECTORS * SPEC_MAX_BLADES], entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
  for (int i = 0; i < count; i++) sums[i] = load(e, attention_at(e, s->g_q, block->rows.channel[i % n], i / n));
  ir_value groups = attention_groups(b, sub(b, end, begin), lanes);
  ir_loop group = ir_for_with(b, e->zero, groups, count, sums, outer);
  ir_value first = add(b, begin, attention_mul(b, group.index, lanes)),
           last = smaller(b, add(b, first, i64(b, lanes)), end);
  ir_loop keys = ir_for_with(b, first, last, count, outer, now);
  key_at_hand at = {.key = keys.index};
  ir_value shared[SPEC_MAX_BLADES] = {{NULL}}, wide[SPEC_MAX_AXES];
  emit_components(e, ir_offset(b, t->rows, mul(b, keys.index, t->stride)), block->rows.channel, n, at.k);
  for (int x = 0; x < vectors; x++) {
    emit_entries(s, block, d, begin, keys.index, x, wide, entry);
    ir_value gain = load(e, attention_at(e, gains, keys.index, x));
    emit_pair(s, block, d, entry, x, &at, gain, guarded, now + x * n, shared);
  }
  for (int i = 0; i < n; i++) store(e, shared[i], partial_at(s, i, sub(b, keys.index, first)));
  ir_end_for_with(b, keys, count, now, outer);
  emit_sum_keys(s, block, first);
  ir_end_for_with(b, group, count, outer, sums);
  for (int i = 0; i < count; i++) store(e, sums[i], attention_at(e, s->g_q, block->rows.channel[i % n], i / n));
}

/* ---- all blocks ---- */

typedef struct walk {
  const turned_gains *s;
  const key_tile *t;
  ir_value gains, guarded;
} walk;

/* The emitter whose queries are without a factor. */
static attention_emitter unscaled(const turned_gains *s) {
  attention_emitter of = *s->pairs->e;
  of.queries = s->q;
  return of;
}

/* Both ways, or the guarded one alone where `guarded` is null. */
static void emit_guarded(const walk *w, const gaining_block *block, delta_emitter *d, ir_value begin, ir_value end) {
  ir *b = w->s->pairs->e->b;
  if (!w->guarded.ptr) {
    emit_block(w->s, w->t, w->gains, block, d, begin, end, true);
    return;
  }
  ir_branch branch = ir_if(b, w->guarded);
  emit_block(w->s, w->t, w->gains, block, d, begin, end, true);
  ir_else(b, &branch);
  emit_block(w->s, w->t, w->gains, block, d, begin, end, false);
  ir_end_if(b, (ir_branch){branch.outer, {NULL}});
}

static void emit_unturned(const walk *w) {
  const attention_emitter *e = w->s->pairs->e;
  attention_emitter of = unscaled(w->s);
  ir *b = e->b;
  int32_t *channels;
  int count = unturned(e->memory, e->p, &channels);
  if (!count) return;
  ir_loop loop = ir_for(b, e->zero, i64(b, count));
  ir_value at = nth(b, ir_table_address(b, unturned_table(e->memory, e->target)), loop.index, 4);
  gaining_block block = {.n = 1};
  block.rows.channel[0] = ir_cast(b, "arith.extsi", ir_load(b, b->i32, at, 4), b->i64);
  for (int x = 0; x < e->shape.vectors; x++)
    block.rows.q[x][0] = load(e, attention_at(e, of.queries, block.rows.channel[0], x));
  emit_guarded(w, &block, NULL, e->zero, w->t->count);
  ir_end_for(b, loop);
}

static void visit_part(void *context, const grid_part *part) {
  const walk *w = context;
  ir *b = w->s->pairs->e->b;
  attention_emitter of = unscaled(w->s);
  ir_loop blocks = ir_for(b, part->first, part->end);
  gaining_block block = {.n = of.p->spec->n_components, .index = blocks.index};
  block.tables = emit_grid_block_tables(&w->s->pairs->grid, part, blocks.index);
  emit_block_rows(&of, blocks.index, &block.rows);
  emit_guarded(w, &block, NULL, part->begin, add(b, part->last, i64(b, 1)));
  ir_end_for(b, blocks);
}

static void emit_pair_by_pair(const walk *w) {
  const attention_emitter *e = w->s->pairs->e;
  attention_emitter of = unscaled(w->s);
  ir *b = e->b;
  ir_loop blocks = ir_for(b, e->zero, i64(b, e->p->spec->n_blocks));
  delta_emitter d = emit_pair_entries_begin(w->s->pairs->e, blocks.index);
  if (e->p->torques) emit_torque_sums_fixed(w->s->sums, &d);
  gaining_block block = {.n = of.p->spec->n_components, .index = blocks.index};
  emit_block_rows(&of, blocks.index, &block.rows);
  emit_guarded(w, &block, &d, e->zero, w->t->count);
  ir_end_for(b, blocks);
}

/* Channels of keys as rows (turned where they stand, for they are read once), added to their sums. */
static void emit_add_rows(const turned_gains *s, const key_tile *t, ir_value sums) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  int lanes = e->shape.lanes;
  int64_t row = (int64_t)s->keys * 4;
  ir_loop groups = ir_for(b, e->zero, attention_groups(b, t->count, lanes));
  ir_value first = attention_mul(b, groups.index, lanes), own = smaller(b, sub(b, t->count, first), i64(b, lanes));
  square_rows squares = {gained_at(s, e->zero, first), row, lanes * row};
  emit_turn(e, squares, squares, s->channels / lanes, ir_float(b, e->lanes, 1));
  ir_loop keys = ir_for(b, e->zero, own);
  ir_value to = nth(b, sums, add(b, t->first, add(b, first, keys.index)), (int64_t)s->channels * 4);
  ir_loop registers = ir_for(b, e->zero, i64(b, s->channels / lanes));
  ir_value channel = attention_mul(b, registers.index, lanes), at = nth(b, to, channel, 4);
  ir_value gained = load(e, gained_at(s, add(b, channel, keys.index), first));
  store(e, add(b, load(e, at), gained), at);
  ir_end_for(b, registers);
  ir_end_for(b, keys);
  ir_end_for(b, groups);
}

void emit_turned_gains(const turned_gains *s, const key_tile *t, ir_value gains, ir_value sums, ir_value guarded) {
  const attention_emitter *e = s->pairs->e;
  ir *b = e->b;
  walk w = {s, t, gains, e->p->by_rows ? guarded : (ir_value){NULL}};
  emit_unturned(&w);
  if (e->p->by_rows) emit_grid_parts(&s->pairs->grid, t, visit_part, &w);
  else emit_pair_by_pair(&w);
  ir_branch wanted = ir_if(b, s->wants_keys);
  emit_add_rows(s, t, sums);
  ir_end_if(b, wanted);
}
