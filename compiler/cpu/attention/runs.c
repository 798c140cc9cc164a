/* cpu/attention/runs: see cpu/attention/runs.h. */
#include "cpu/attention/runs.h"

/* Float32 holds smaller coordinates of whole quarters, and their displacements, exactly. */
static const double MOST = 0x1p20;

static int64_t most_keys(const attention_emitter *e) {
  return (e->shape.keys - 1 + 2 * (int64_t)e->shape.queries - 1) / e->shape.queries;
}

/* i1: a coordinate from which on all are exact. */
static ir_value emit_is_exact(const attention_emitter *e, ir_value first) {
  ir *b = e->b;
  ir_value is_small = ir_compare_float(b, "olt", ir_op1(b, "math.absf", first), ir_float(b, b->f32, MOST)),
           quarters = ir_op2(b, "arith.mulf", first, ir_float(b, b->f32, 4)),
           near = ir_select(b, is_small, quarters, ir_float(b, b->f32, 0)),
           whole = ir_cast(b, "arith.sitofp", ir_cast(b, "arith.fptosi", near, b->i64), b->f32);
  return ir_compare_float(b, "oeq", whole, quarters);
}

/* i1: `count` float32 from `at` on count up by one. */
static ir_value emit_counts_up(const attention_emitter *e, ir_value at, ir_value count) {
  ir *b = e->b;
  int lanes = e->shape.lanes;
  double numbers[64];
  for (int i = 0; i < lanes; i++) numbers[i] = i;
  ir_value first = ir_load(b, b->f32, at, 4), none = ir_int(b, ir_vector(b, lanes, b->i1), 0),
           end = ir_cast(b, "arith.sitofp", count, b->f32), now, others;
  ir_loop groups = ir_for_with(b, e->zero, attention_groups(b, count, lanes), 1, &none, &now);
  ir_value before = ir_cast(b, "arith.sitofp", attention_mul(b, groups.index, lanes), b->f32),
           number = add(b, ir_floats(b, e->lanes, numbers), ir_broadcast(b, e->lanes, before)),
           expected = add(b, ir_broadcast(b, e->lanes, first), number),
           differs = ir_compare_float(b, "une", load(e, nth(b, at, groups.index, 4LL * lanes)), expected),
           is_one = ir_compare_float(b, "olt", number, ir_broadcast(b, e->lanes, end)),
           next = ir_op2(b, "arith.ori", now, ir_op2(b, "arith.andi", differs, is_one));
  ir_end_for_with(b, groups, 1, &next, &others);
  return ir_select(b, emit_some(e, others), ir_int(b, b->i1, 0), emit_is_exact(e, first));
}

void emit_runs_begin(pair_emitter *pairs) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  if (!attention_has_runs(e->p) || e->shape.vectors * e->shape.lanes < e->shape.queries) return;
  run_rooms *run = &pairs->run;
  run->queries = ir_alloca(b, (int64_t)e->shape.queries * 4, CACHE_LINE);
  run->keys = ir_alloca(b, (int64_t)e->p->n_places * key_places_room(&e->shape) * 4, CACHE_LINE);
  run->numbers = ir_alloca(b, most_keys(e) * e->shape.queries * 4, CACHE_LINE);
  run->step = ir_alloca(b, 8, 8);
  run->flag = ir_alloca(b, 8, 8);
  ir_store(b, e->zero, run->step, 8, false);
  run->of_queries = emit_counts_up(e, pairs->query_places, ATTENTION_TILE(e, queries, b->i64));
  run->of_queries = ir_select(b, pairs->is_far, ir_int(b, b->i1, 0), run->of_queries);
  ir_value first = ir_load(b, b->f32, pairs->query_places, 4);
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.queries));
  ir_store(b, add(b, first, ir_cast(b, "arith.sitofp", lanes.index, b->f32)), nth(b, run->queries, lanes.index, 4), 4,
           false);
  ir_end_for(b, lanes);
}

void emit_run_of_keys(const pair_emitter *pairs, const key_tile *t) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  const run_rooms *run = &pairs->run;
  if (!run->flag.ptr) return;
  ir_value is_near = ir_compare_int(b, "eq", ir_load(b, b->i64, pairs->step, 8), e->zero),
           is_run = ir_op2(b, "arith.andi", is_near, run->of_queries);
  is_run = ir_op2(b, "arith.andi", is_run, emit_counts_up(e, pairs->places.narrow, t->count));
  ir_store(b, ir_cast(b, "arith.extui", is_run, b->i64), run->flag, 8, false);
  ir_value last = ir_load(b, b->f32, nth(b, pairs->places.narrow, sub(b, t->count, i64(b, 1)), 4), 4);
  for (int64_t key = 0; key < most_keys(e); key++) {
    ir_value place = sub(b, last, ir_float(b, b->f32, (double)key * e->shape.queries));
    ir_store(b, place, ir_offset_const(b, run->keys, key * 4), 4, false);
  }
}

displaced_pairs emit_displaced(const pair_emitter *pairs, const key_tile *t, ir_value numbers) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  const run_rooms *run = &pairs->run;
  displaced_pairs d = {*pairs, t->count, numbers, {NULL}};
  if (!run->flag.ptr) return d;
  ir_value groups = attention_groups(b, add(b, t->count, i64(b, e->shape.queries - 1)), e->shape.queries);
  d.is_run = ir_compare_int(b, "ne", ir_load(b, b->i64, run->flag, 8), e->zero);
  d.pairs.places.narrow = ir_select(b, d.is_run, run->keys, pairs->places.narrow);
  d.pairs.query_places = ir_select(b, d.is_run, run->queries, pairs->query_places);
  d.pairs.step = ir_select(b, d.is_run, run->step, pairs->step);
  d.count = ir_select(b, d.is_run, groups, t->count);
  d.numbers = ir_select(b, d.is_run, run->numbers, numbers);
  return d;
}

/* Where the run has the pairs of key `key` and register `vector`. */
static ir_value number_at(const displaced_pairs *d, const key_tile *t, ir_value key, int vector) {
  const attention_emitter *e = d->pairs.e;
  ir *b = e->b;
  ir_value behind = sub(b, sub(b, t->count, i64(b, 1)), key);
  return ir_offset_const(b, nth(b, d->numbers, behind, 4), (int64_t)vector * e->shape.lanes * 4);
}

void emit_displaced_end(const displaced_pairs *d, const key_tile *t, ir_value numbers) {
  const attention_emitter *e = d->pairs.e;
  ir *b = e->b;
  if (!d->is_run.ptr) return;
  ir_branch in_order = ir_if(b, d->is_run);
  ir_loop keys = ir_for(b, e->zero, t->count);
  for (int x = 0; x < e->shape.vectors; x++)
    store(e, load(e, number_at(d, t, keys.index, x)), attention_at(e, numbers, keys.index, x));
  ir_end_for(b, keys);
  ir_end_if(b, in_order);
}

void emit_displaced_sums(const displaced_pairs *d, const key_tile *t, ir_value gains) {
  const attention_emitter *e = d->pairs.e;
  ir *b = e->b;
  if (!d->is_run.ptr) return;
  ir_branch in_order = ir_if(b, d->is_run);
  emit_zeros(e, d->numbers, most_keys(e) * e->shape.queries);
  ir_loop keys = ir_for(b, e->zero, t->count);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value to = number_at(d, t, keys.index, x);
    store(e, add(b, load(e, to), load(e, attention_at(e, gains, keys.index, x))), to);
  }
  ir_end_for(b, keys);
  ir_end_if(b, in_order);
}
