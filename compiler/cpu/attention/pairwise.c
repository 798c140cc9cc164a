/* cpu/attention/pairwise: bias and rotations of a tile's pairs; see cpu/attention/pairwise.h.
 *
 * A bias is a float32 expression per pair, added while the score is in registers. A rotation multiplies every
 * pair by its own matrices, so its part of the scores is summed block by block in memory: the queries' components
 * of the block stay in registers over all keys of the tile.
 */
#include "cpu/attention/pairwise.h"

#include "cpu/attention/blocks.h"
#include "cpu/attention/delta.h"
#include "cpu/attention/runs.h"
#include "cpu/attention/strips.h"
#include "mlir/arith.h"

/* ---- a bias that is computed pair by pair ---- */

static void emit_mask_fixed(delta_emitter *d, const attention_mask *mask) {
  emit_expr_fixed(&d->walker, mask->unseen);
  if (!mask->whole) return;
  emit_expr_fixed(&d->walker, mask->whole);
  emit_expr_fixed(&d->walker, mask->open);
}

/* ---- the tile's places ---- */

pair_emitter emit_pairs_begin(const attention_emitter *e, const key_places *places) {
  ir *b = e->b;
  pair_emitter pairs = {.e = e, .fixed = delta_memo(e)};
  delta_emitter d = delta_emitter_create(e, pairs.fixed);
  if (e->p->bias && !e->p->by_tiles) emit_expr_fixed(&d.walker, e->p->bias);
  if (e->p->score) emit_expr_fixed(&d.walker, e->p->score);
  if (e->p->gain) emit_expr_fixed(&d.walker, e->p->gain);
  if (e->p->mask) emit_mask_fixed(&d, e->p->mask);
  if (e->p->by_rows) {
    pairs.grid = emit_grid_begin(e, pairs.fixed);
    return pairs;
  }
  pairs.places = places ? *places : emit_key_places_begin(e);
  if (e->p->by_tiles) pairs.biases = ir_alloca(b, (int64_t)e->shape.keys * e->shape.queries * 4, 64);
  if (e->p->bias || e->p->score) emit_query_places(&pairs);
  emit_runs_begin(&pairs);
  emit_strips_begin(&pairs);
  return pairs;
}

void emit_pairs_places(const pair_emitter *pairs, const key_tile *t) {
  emit_tile_places(pairs, t);
  emit_run_of_keys(pairs, t);
  emit_strips_keys(pairs, t);
}

void emit_pairs_keys(const pair_emitter *pairs, const key_tile *t) {
  const attention_emitter *e = pairs->e;
  if (e->p->by_rows) {
    if (e->p->bias) emit_grid_bias_table(&pairs->grid, t);
    return;
  }
  emit_pairs_places(pairs, t);
  if (e->p->by_tiles) emit_pairs_biases(pairs, t);
}

void emit_pairs_biases(const pair_emitter *pairs, const key_tile *t) {
  const attention_emitter *e = pairs->e;
  displaced_pairs d = emit_displaced(pairs, t, pairs->biases);
  ir_value step = ir_load(e->b, e->b->i64, d.pairs.step, 8), vectors = i64(e->b, e->shape.vectors);
  ir_value arguments[] = {e->tile, d.pairs.places.narrow, d.pairs.query_places, step, d.count, d.numbers, vectors};
  ir_call(e->b, emit_bias_name(e->memory, e->target), 7, arguments);
  emit_displaced_end(&d, t, pairs->biases);
}

pair_emitter emit_kept_pairs(const pair_emitter *pairs, const key_tile *t, ir_value is_placed) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  pair_emitter of = *pairs;
  ir_value room = ATTENTION_TILE(e, biases, b->ptr), is_kept = attention_is_given(e, room),
           at = nth(b, room, t->first, e->shape.queries * 4),
           is_first = ir_compare_int(b, "ne", ATTENTION_TILE(e, is_first, b->i64), e->zero);
  of.biases = ir_select(b, is_kept, at, pairs->biases);
  ir_branch places = ir_if(b, ir_op2(b, "arith.ori", is_first, is_placed));
  emit_pairs_places(&of, t);
  ir_end_if(b, places);
  ir_branch biases = ir_if(b, is_first);
  emit_pairs_biases(&of, t);
  ir_end_if(b, biases);
  return of;
}

/* All numbers of a pair. */
static void emit_narrow(const pair_emitter *pairs, ir_value key, ir_value vector, ir_value *narrow) {
  emit_places_of_pair(pairs, key, vector, narrow);
  emit_strip_values(pairs, key, vector, narrow);
}

void emit_pair_gains(const pair_emitter *pairs, const key_tile *t, ir_value gains, bool by_displacement, ir_value room,
                     emit_displacement_visitor *visit, void *context) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  if (e->p->by_rows) {
    emit_grid_sums(&pairs->grid, t, gains, room, visit, context);
    return;
  }
  displaced_pairs of = {*pairs, t->count, gains, {NULL}};
  if (by_displacement && e->p->by_tiles) {
    of = emit_displaced(pairs, t, gains);
    emit_displaced_sums(&of, t, gains);
  }
  ir_loop keys = ir_for(b, e->zero, of.count);
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value narrow[PAIR_NUMBERS] = {{NULL}}, row = nth(b, of.numbers, keys.index, e->shape.queries * 4);
  emit_narrow(&of.pairs, keys.index, vectors.index, narrow);
  delta_emitter d = delta_emitter_at(e, pairs->fixed, narrow);
  d.key = keys.index, d.vector = vectors.index;
  d.cotangent = ir_load(b, e->lanes, nth(b, row, vectors.index, e->shape.lanes * 4), 4);
  visit(context, &d);
  ir_end_for(b, vectors);
  ir_end_for(b, keys);
}

/* A function of a displacement, and of a product. */
static ir_value value_at(const attention_emitter *e, two_float *fixed, ir_value *narrow, const expr *x,
                         ir_value product) {
  narrow[SPEC_OF_SCORE] = product;
  delta_emitter d = delta_emitter_at(e, fixed, narrow);
  return emit_expr_f32(&d.walker, x);
}

/* The value of x for a pair; vector: i64, the register of queries. */
static ir_value pair_value(const pair_emitter *pairs, const expr *x, ir_value key, ir_value vector) {
  ir_value narrow[PAIR_NUMBERS] = {{NULL}};
  emit_narrow(pairs, key, vector, narrow);
  return value_at(pairs->e, pairs->fixed, narrow, x, narrow[SPEC_OF_SCORE]);
}

/* ---- a score, of the product and of the pair ---- */

/* A bias that hides the key hides its score, too, should that be no number. */
static ir_value biased(const attention_emitter *e, ir_value score, ir_value bias, bool checked) {
  ir *b = e->b;
  ir_value sum = add(b, score, bias), hidden = ir_float(b, e->lanes, -__builtin_inf());
  return e->p->hides && checked ? ir_select(b, ir_compare_float(b, "oeq", bias, hidden), hidden, sum) : sum;
}

ir_value emit_score_at(const attention_emitter *e, two_float *fixed, ir_value *narrow, ir_value product, bool checked) {
  ir *b = e->b;
  const attention_plan *p = e->p;
  ir_value value = value_at(e, fixed, narrow, p->score ? p->score : p->bias, product);
  if (!p->score) return biased(e, product, value, checked);
  if (!p->hides || !checked) return value;
  /* A product that is no number is none of a key that the score hides whatever its product. */
  ir_value zero = ir_float(b, e->lanes, 0), infinity = ir_float(b, e->lanes, __builtin_inf()),
           hidden = ir_float(b, e->lanes, -__builtin_inf()), of_zero = value_at(e, fixed, narrow, p->score, zero),
           is_number = ir_compare_float(b, "olt", ir_op1(b, "math.absf", product), infinity),
           others = ir_select(b, ir_compare_float(b, "oeq", of_zero, hidden), hidden, value);
  return ir_select(b, is_number, value, others);
}

ir_value emit_pair_score(const pair_emitter *pairs, ir_value key, int vector, ir_value product, bool open,
                         bool checked) {
  const attention_emitter *e = pairs->e;
  const attention_plan *p = e->p;
  ir_value narrow[PAIR_NUMBERS] = {{NULL}};
  if (!p->bias && !p->score) return product;
  if (p->bias && !open) return biased(e, product, emit_pair_bias(pairs, key, vector), checked);
  if (p->bias && expr_is_const(p->mask->open, 0)) return product;
  emit_narrow(pairs, key, i64(e->b, vector), narrow);
  if (!open) return emit_score_at(e, pairs->fixed, narrow, product, checked);
  ir_value value = value_at(e, pairs->fixed, narrow, p->mask->open, product);
  return p->score ? value : add(e->b, product, value);
}

/* Stores the gradient of a pair's product. A pair that is not seen has 0, whatever its product is. */
static void give_product(void *context, delta_emitter *d) {
  const pair_emitter *pairs = context;
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  ir_value zero = ir_float(b, e->lanes, 0), counts = ir_compare_float(b, "une", d->cotangent, zero), gain = zero;
  if (e->p->gain) gain = emit_expr_f32(&d->walker, e->p->gain);
  ir_value row = nth(b, pairs->gains, d->key, e->shape.queries * 4);
  store(e, ir_select(b, counts, gain, zero), nth(b, row, d->vector, e->shape.lanes * 4));
}

void emit_product_gains(const pair_emitter *pairs, const key_tile *t, ir_value gains) {
  pair_emitter of = *pairs;
  of.gains = gains;
  emit_pair_gains(pairs, t, gains, false, (ir_value){NULL}, give_product, &of);
}

ir_value emit_pair_bias(const pair_emitter *pairs, ir_value key, int vector) {
  const attention_emitter *e = pairs->e;
  if (e->p->by_rows) return emit_grid_bias(&pairs->grid, key, vector);
  if (!e->p->by_tiles) return pair_value(pairs, e->p->bias, key, i64(e->b, vector));
  return ir_load(e->b, e->lanes, attention_at(e, pairs->biases, key, vector), 4);
}

void emit_pair_biases(ir *b, arena *a, const attention_plan *p, const cpu_target *target) {
  attention_emitter e = attention_emitter_create(b, a, p, target);
  ir_value arguments[7];
  ir_open(b, emit_bias_name(a, target), "pppiipi", arguments);
  e.zero = i64(b, 0);
  e.tile = arguments[0];
  pair_emitter pairs = {.e = &e,
                        .fixed = delta_memo(&e),
                        .places = {.narrow = arguments[1], .room = key_places_room(&e.shape)},
                        .query_places = arguments[2],
                        .step = ir_alloca(b, 8, 8)};
  ir_store(b, arguments[3], pairs.step, 8, false);
  delta_emitter d = delta_emitter_create(&e, pairs.fixed);
  emit_expr_fixed(&d.walker, p->bias);
  ir_loop keys = ir_for(b, e.zero, arguments[4]);
  ir_loop vectors = ir_for(b, e.zero, arguments[6]);
  ir_value row = nth(b, arguments[5], keys.index, e.shape.queries * 4);
  ir_value at = nth(b, row, vectors.index, e.shape.lanes * 4);
  ir_store(b, pair_value(&pairs, p->bias, keys.index, vectors.index), at, 4, false);
  ir_end_for(b, vectors);
  ir_end_for(b, keys);
  ir_return(b);
}

/* ---- rotations ---- */

/* Displacements of a key and the queries of a register, float64. */
static void emit_wide(const pair_emitter *pairs, ir_value key, int vector, ir_value *wide) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int axes = e->p->spec->n_axes;
  MlirType lanes = ir_vector(b, e->shape.lanes, b->f64);
  ir_value at = nth(b, pairs->places.wide, key, 8);
  for (int axis = 0; axis < axes; axis++) {
    ir_value k =
        ir_broadcast(b, lanes, ir_load(b, b->f64, ir_offset_const(b, at, (int64_t)axis * pairs->places.room * 8), 8));
    int64_t from = (int64_t)offsetof(pegen_attention_tile, positions) +
                   ((int64_t)axis * PEGEN_ATTENTION_QUERIES + (int64_t)vector * e->shape.lanes) * 8;
    wide[axis] = sub(b, k, ir_load(b, lanes, ir_offset_const(b, e->tile, from), 8));
  }
}

delta_emitter emit_pair_entries_begin(const attention_emitter *e, ir_value block) {
  delta_emitter d = delta_emitter_create(e, delta_memo(e));
  d.block = block;
  for (int i = 0; i < e->p->n_entries; i++) emit_expr_fixed(&d.walker, e->p->entry[i]);
  return d;
}

void emit_pair_entries_at(delta_emitter *d, const ir_value *wide, ir_value *entry) {
  const attention_plan *p = d->e->p;
  d->walker.varying = delta_memo(d->e);
  d->wide = wide;
  for (int i = 0; i < p->n_entries; i++) entry[i] = emit_expr_f32(&d->walker, p->entry[i]);
}

void emit_pair_entries(const pair_emitter *pairs, delta_emitter *d, ir_value key, int vector, ir_value *wide,
                       ir_value *entry) {
  emit_wide(pairs, key, vector, wide);
  emit_pair_entries_at(d, wide, entry);
}

void emit_pair_rotations(const pair_emitter *pairs, const key_tile *t) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  const spec *s = e->p->spec;
  if (e->p->by_rows) {
    emit_grid_rotations(&pairs->grid, t);
    return;
  }
  ir_loop blocks = ir_for(b, e->zero, i64(b, s->n_blocks));
  delta_emitter d = emit_pair_entries_begin(e, blocks.index);
  ir_loop keys = ir_for(b, e->zero, t->count);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value wide[SPEC_MAX_AXES], entry[SPEC_MAX_BLADES * SPEC_MAX_BLADES];
    emit_pair_entries(pairs, &d, keys.index, x, wide, entry);
    head_loop heads = attention_heads_begin(e);
    attention_emitter of = attention_emitter_of_head(e, &heads);
    key_tile own = key_tile_of_head(e, &heads, t);
    block_rows block;
    ir_value k[SPEC_MAX_BLADES], at = attention_at(e, own.scores, keys.index, x);
    emit_block_rows(&of, blocks.index, &block);
    emit_key_components(e, ir_offset(b, own.rows, mul(b, keys.index, own.stride)), &block, k);
    ir_store(b, emit_turned_score(e, entry, block.q[x], k, ir_load(b, e->lanes, at, 4)), at, 4, false);
    attention_heads_end(e, heads);
  }
  ir_end_for(b, keys);
  ir_end_for(b, blocks);
}
