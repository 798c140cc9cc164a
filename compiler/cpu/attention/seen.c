/* cpu/attention/seen: see cpu/attention/seen.h.
 *
 * Blocks are in the lanes: bounds of a block's keys less those of the tile's queries bound every displacement of their
 * pairs, as float32 rounds it, since a difference rounds monotonely in both.
 */
#include "cpu/attention/seen.h"

#include "cpu/attention/delta.h"
#include "cpu/attention/dots.h"

static ir_value of_seen(const attention_emitter *e, ir_value seen, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, seen, (int64_t)offset), 8);
}
#define OF_SEEN(e, seen, name, type) of_seen((e), (seen), offsetof(pegen_attention_seen, name), (type))

static ir_value lane_constant(const attention_emitter *e, double x) { return ir_float(e->b, e->lanes, x); }

/* Displacements of the blocks in the lanes, [axis][2]; i1 lanes: whether all of them are numbers that are not too
 * large. */
static ir_value emit_bounds(const attention_emitter *e, ir_value seen, ir_value at, ir_value *bounds) {
  ir *b = e->b;
  int64_t reach = offsetof(pegen_attention_tile, reach);
  ir_value numbers = OF_SEEN(e, seen, bounds, b->ptr), row = attention_mul(b, OF_SEEN(e, seen, pitch, b->i64), 4),
           furthest = lane_constant(e, INTERVAL_FURTHEST), is_known = {NULL};
  for (int axis = 0; axis < e->p->n_places; axis++)
    for (int side = 0; side < 2 && e->p->mask->reads >> axis & 1; side++) {
      ir_value from = nth(b, numbers, row, 2 * axis + side);
      ir_value keys = ir_load(b, e->lanes, nth(b, from, at, 4), 4);
      ir_value queries = ir_load(b, b->f32, ir_offset_const(b, e->tile, reach + (2 * axis + 1 - side) * 4), 4);
      ir_value difference = sub(b, keys, ir_broadcast(b, e->lanes, queries));
      ir_value fits = ir_compare_float(b, "olt", ir_op1(b, "math.absf", difference), furthest);
      is_known = is_known.ptr ? ir_op2(b, "arith.andi", is_known, fits) : fits;
      bounds[mask_bound(axis, side)] = difference;
    }
  return is_known;
}

/* i1 lanes of a flag. */
static ir_value emit_flag(delta_emitter *d, const expr *flag) {
  const attention_emitter *e = d->e;
  return ir_compare_float(e->b, "ogt", emit_expr_f32(&d->walker, flag), lane_constant(e, 0));
}

/* Whether tiles are told apart that are seen whole: their bias is mask->open. */
static bool attention_opens(const attention_plan *p) { return p->mask && p->mask->open && !p->by_rows && !p->by_tiles; }

static void emit_states(const pair_emitter *pairs, ir_value seen, ir_value at) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  const attention_mask *mask = e->p->mask;
  ir_value bounds[MASK_BOUNDS * SPEC_MAX_AXES], is_known = emit_bounds(e, seen, at, bounds);
  delta_emitter d = delta_emitter_create(e, pairs->fixed);
  d.walker.varying = delta_memo(e);
  d.torques = bounds;
  MlirType integers = ir_vector(b, e->shape.lanes, b->i32);
  ir_value state = ir_int(b, integers, PEGEN_ATTENTION_MIXED);
  if (attention_opens(e->p))
    state = ir_select(b, emit_flag(&d, mask->whole), ir_int(b, integers, PEGEN_ATTENTION_WHOLE), state);
  state = ir_select(b, emit_flag(&d, mask->unseen), ir_int(b, integers, PEGEN_ATTENTION_UNSEEN), state);
  if (is_known.ptr) state = ir_select(b, is_known, state, ir_int(b, integers, PEGEN_ATTENTION_MIXED));
  ir_store(b, state, nth(b, OF_SEEN(e, seen, states, b->ptr), at, 4), 4, false);
}

void emit_unseen_blocks(attention_emitter *e) {
  ir *b = e->b;
  int lanes = e->shape.lanes;
  MlirType integers = ir_vector(b, lanes, b->i32);
  pair_emitter pairs = {.e = e, .fixed = delta_memo(e)};
  delta_emitter d = delta_emitter_create(e, pairs.fixed);
  emit_expr_fixed(&d.walker, e->p->mask->unseen);
  ir_value seen = ATTENTION_TILE(e, seen, b->ptr), pitch = OF_SEEN(e, seen, pitch, b->i64);
  ir_loop vectors = ir_for(b, e->zero, ir_op2(b, "arith.divsi", pitch, i64(b, lanes)));
  ir_value bounds[MASK_BOUNDS * SPEC_MAX_AXES], at = attention_mul(b, vectors.index, lanes),
                                                is_known = emit_bounds(e, seen, at, bounds);
  d.walker.varying = delta_memo(e);
  d.torques = bounds;
  ir_value unseen = emit_flag(&d, e->p->mask->unseen);
  if (is_known.ptr) unseen = ir_op2(b, "arith.andi", unseen, is_known);
  ir_value to = nth(b, OF_SEEN(e, seen, states, b->ptr), at, 4), was = ir_load(b, integers, to, 4),
           mixed = ir_int(b, integers, PEGEN_ATTENTION_MIXED);
  ir_store(b, ir_select(b, unseen, was, mixed), to, 4, false);
  ir_end_for(b, vectors);
}

/* Writes the states of all blocks with keys in [begin, end). */
static void emit_all_states(const pair_emitter *pairs, ir_value seen, ir_value begin, ir_value end) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  int lanes = e->shape.lanes;
  ir_value skip = i64(b, e->p->spec->skip_tokens), step = attention_mul(b, OF_SEEN(e, seen, keys, b->i64), lanes);
  ir_value first = ir_op2(b, "arith.divsi", sub(b, begin, skip), step);
  ir_value last = add(b, sub(b, end, skip), sub(b, step, i64(b, 1)));
  ir_loop vectors = ir_for(b, first, ir_op2(b, "arith.divsi", last, step));
  emit_states(pairs, seen, attention_mul(b, vectors.index, lanes));
  ir_end_for(b, vectors);
}

/* ---- tiles of keys ---- */

static void emit_run(const pair_emitter *pairs, const key_tile *run, emit_key_tile_function *visit, void *context) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  key_tile t = *run;
  bool by_rows = run->paired && e->p->by_rows;
  int64_t keys = by_rows ? attention_key_step(e->p, &e->shape) : e->shape.keys;
  ir_value step = i64(b, keys), total = sub(b, run->run_end, run->run_begin);
  ir_loop tiles = ir_for(b, e->zero, ir_op2(b, "arith.divsi", add(b, total, i64(b, keys - 1)), step));
  t.first = add(b, run->run_begin, mul(b, tiles.index, step));
  t.count = smaller(b, sub(b, run->run_end, t.first), step);
  if (by_rows && pairs->grid.shape.segments > 1) emit_grid_segments(&pairs->grid, t, visit, context);
  else visit(context, &t);
  ir_end_for(b, tiles);
}

void emit_key_tiles(const pair_emitter *pairs, ir_value begin, ir_value end, bool paired, emit_key_tile_function *visit,
                    void *context) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  key_tile run = {.paired = paired, .run_begin = begin, .run_end = end};
  if (!paired || !e->p->mask) {
    emit_run(pairs, &run, visit, context);
    return;
  }
  ir_value seen = ATTENTION_TILE(e, seen, b->ptr);
  emit_all_states(pairs, seen, begin, end);
  ir_value step = i64(b, e->p->by_rows ? attention_key_step(e->p, &e->shape) : 1),
           arguments[] = {seen, i64(b, e->p->spec->skip_tokens), begin, end, step};
  ir_call(b, "pegen_attention_runs", 5, arguments);
  ir_value runs = OF_SEEN(e, seen, runs, b->ptr), part[4];
  ir_loop loop = ir_for(b, e->zero, OF_SEEN(e, seen, n_runs, b->i64));
  ir_value at = nth(b, runs, loop.index, sizeof(pegen_attention_run));
  for (int i = 0; i < 4; i++) part[i] = ir_load(b, b->i64, ir_offset_const(b, at, i * 8), 8);
  run.run_begin = part[0];
  run.run_end = part[1];
  if (attention_opens(e->p)) {
    run.whole_begin = part[2];
    run.whole_end = part[3];
  }
  emit_run(pairs, &run, visit, context);
  ir_end_for(b, loop);
}

ir_value emit_is_whole(const attention_emitter *e, const key_tile *t, ir_value first, ir_value end) {
  ir *b = e->b;
  ir_value last = smaller(b, t->whole_end, ATTENTION_TILE(e, limit, b->i64));
  ir_value begins = ir_compare_int(b, "sge", first, t->whole_begin), ends = ir_compare_int(b, "sle", end, last);
  return ir_op2(b, "arith.andi", begins, ends);
}

/* ---- keys that one register of queries sees alone ----
 *
 * A window over tokens in their order slides through a tile: of a tile of 32 queries the first 16 keys are seen by the
 * first register alone, and the last 16 by the second. Their multiply-adds are half as many. What is left out are
 * scores that the bias or `causal` hides and weights of 0: no number is another for it.
 */

bool attention_has_lone(const attention_plan *p, const attention_shape *s) {
  return attention_opens(p) && p->bias && !p->score && !p->columns && !p->matrix && s->lanes == 16 && s->vectors == 2;
}

/* i1: some query of a register may see one of the keys. Keys behind the last one may well be said to be seen. */
static ir_value emit_sees_some(const attention_emitter *e, const pair_emitter *pairs, const key_tile *t, ir_value key,
                               int rows, int vector) {
  ir *b = e->b;
  MlirType integers = ir_vector(b, e->shape.lanes, b->i32);
  ir_value limits = ir_load(
      b, integers,
      ir_offset_const(b, e->tile, (int64_t)offsetof(pegen_attention_tile, limits) + vector * e->shape.lanes * 4), 4);
  ir_value hidden = ir_float(b, e->lanes, -__builtin_inf()), some = {NULL};
  for (int r = 0; r < rows; r++) {
    ir_value at = add(b, key, i64(b, r));
    ir_value index = ir_broadcast(b, integers, ir_cast(b, "arith.trunci", add(b, t->first, at), b->i32));
    ir_value sees = ir_op2(b, "arith.andi", ir_compare_int(b, "slt", index, limits),
                           ir_compare_float(b, "une", emit_pair_bias(pairs, at, vector), hidden));
    some = some.ptr ? ir_op2(b, "arith.ori", some, sees) : sees;
  }
  ir_value bits = ir_extract(b, ir_bitcast_lanes(b, some, ir_vector(b, 1, b->i16)), 0);
  return ir_compare_int(b, "ne", bits, ir_int(b, b->i16, 0));
}

/* Far from the ends of a run of keys no more than holes are to be found, and not worth a look at every pair. */
static ir_value emit_is_edge(const attention_emitter *e, const key_tile *t, ir_value first, ir_value last) {
  ir *b = e->b;
  ir_value queries = i64(b, e->shape.queries), whole = emit_is_whole(e, t, first, last);
  ir_value begins = ir_compare_int(b, "slt", first, add(b, t->run_begin, queries)),
           ends = ir_compare_int(b, "sgt", last, sub(b, t->run_end, queries));
  return ir_op2(b, "arith.andi", ir_op2(b, "arith.ori", begins, ends),
                ir_op2(b, "arith.xori", whole, ir_int(b, b->i1, 1)));
}

ir_value emit_lone(const attention_emitter *e, const pair_emitter *pairs, const key_tile *t, ir_value key, int rows) {
  ir *b = e->b;
  ir_value first = add(b, t->first, key), both = i64(b, LONE_BOTH), lone;
  ir_choice choice = ir_choose(b, emit_is_edge(e, t, first, add(b, first, i64(b, rows))), 1, &b->i64);
  ir_value sees_first = emit_sees_some(e, pairs, t, key, rows, 0),
           sees_second = emit_sees_some(e, pairs, t, key, rows, 1);
  ir_value second = ir_select(b, sees_first, both, i64(b, LONE_SECOND));
  ir_value found = ir_select(b, sees_second, second, i64(b, LONE_FIRST));
  ir_choose_else(b, &choice, 1, &found);
  ir_end_choose(b, choice, 1, &both, &lone);
  return lone;
}

static ir_value lone_at(const attention_emitter *e, const key_tile *t, ir_value group) {
  return nth(e->b, t->lone, group, 8);
}

void emit_keep_lone(const attention_emitter *e, const key_tile *t, ir_value group, ir_value lone) {
  ir_store(e->b, lone, lone_at(e, t, group), 8, false);
}

ir_value emit_is_second(const attention_emitter *e, ir_value lone) {
  return ir_compare_int(e->b, "eq", lone, i64(e->b, LONE_SECOND));
}

void emit_lone_products(const attention_emitter *e, const ir_value *rows, ir_value lone, ir_value *sums) {
  ir *b = e->b;
  attention_emitter of = *e;
  of.shape = attention_narrow_shape(&e->shape);
  ir_value vector = sub(b, lone, i64(b, LONE_FIRST)), own[ATTENTION_MAX_ROWS], zero = ir_float(b, e->lanes, 0);
  of.queries = nth(b, e->queries, vector, e->shape.lanes * 4);
  for (int r = 0; r < e->shape.rows; r++) own[r] = zero;
  emit_products(&of, rows, 0, e->p->head_dim, own);
  ir_value is_second = emit_is_second(e, lone);
  for (int r = 0; r < e->shape.rows; r++) {
    sums[2 * r] = ir_select(b, is_second, zero, own[r]);
    sums[2 * r + 1] = ir_select(b, is_second, own[r], zero);
  }
}

lone_edges emit_lone_edges(const attention_emitter *e, const key_tile *t) {
  ir *b = e->b;
  int rows = e->shape.rows;
  ir_value groups = attention_groups(b, t->count, rows), both = i64(b, LONE_BOTH), one = i64(b, 1);
  lone_edges edges = {.first = ir_load(b, b->i64, t->lone, 8)};
  edges.last = ir_load(b, b->i64, lone_at(e, t, sub(b, groups, one)), 8);
  ir_value empty[] = {e->zero, e->zero}, now[2], next[2], found[2]; /* groups before, and behind so far */
  ir_loop loop = ir_for_with(b, e->zero, groups, 2, empty, now);
  ir_value lone = ir_load(b, b->i64, lone_at(e, t, loop.index), 8), is_lone = ir_compare_int(b, "ne", lone, both);
  ir_value is_first = ir_op2(b, "arith.andi", is_lone, ir_compare_int(b, "eq", lone, edges.first));
  ir_value follows = ir_op2(b, "arith.andi", is_first, ir_compare_int(b, "eq", now[0], loop.index));
  next[0] = ir_select(b, follows, add(b, loop.index, one), now[0]);
  ir_value is_last = ir_op2(b, "arith.andi", is_lone, ir_compare_int(b, "eq", lone, edges.last));
  next[1] = ir_select(b, is_last, add(b, now[1], one), e->zero);
  ir_end_for_with(b, loop, 2, next, found);
  edges.begin = smaller(b, attention_mul(b, found[0], rows), t->count);
  ir_value end = smaller(b, attention_mul(b, sub(b, groups, found[1]), rows), t->count);
  edges.end = larger(b, end, edges.begin);
  return edges;
}
