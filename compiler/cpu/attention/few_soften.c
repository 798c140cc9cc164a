/* cpu/attention/few_soften: what stands between scores and values; see cpu/attention/few.h.
 *
 * Scores have keys in the lanes here, and a row after the other is done: bias, mask and maximum, and then
 * p = 2^(score - maximum) and its sum. With a bias that hides keys, the tile tells whether some or all of its weights p
 * are 0: values are then left out key by key, or the tile as a whole.
 */
#include "cpu/attention/few.h"
#include "cpu/attention/pairwise.h"
#include "mlir/exp2.h"

typedef struct soften {
  const attention_emitter *e;
  bool paired;
  key_places places;
  ir_value are_far; /* i1: coordinates of keys are far from the origin */
  ir_value displaced; /* room for displacements of a row, [axis][room] */
  ir_value numbers;   /* of a row's pairs, [place][room] */
  ir_value count, first, registers;
  ir_value next, next_token; /* the row of the next tile's first key, and bytes from key to key */
  ir_value extremes; /* the least and the largest power of the tile; null: nobody asks */
} soften;

/* Finds the row of the next tile's first key, for prefetch. Where keys are in pages that row is elsewhere, and a row at
 * hand stands in for it. */
static void find_next(soften *s) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  ir_value follows = ir_compare_int(b, "eq", ATTENTION_TILE(e, pages, b->i64), e->zero);
  ir_value token = ATTENTION_TILE(e, k_token, b->i64), behind = mul(b, add(b, s->first, s->count), token);
  s->next_token = ir_select(b, follows, token, e->zero);
  s->next = ir_offset(b, ATTENTION_TILE(e, k, b->ptr), ir_select(b, follows, behind, e->zero));
}

/* One row. */
typedef struct soften_row {
  const soften *s;
  attention_emitter e; /* leaves are those of the row's head */
  two_float *fixed;
  ir_value place[SPEC_MAX_PLACES]; /* of the query, float32; where its row is: i64 */
  ir_value keys; /* what it is taken off: [axis][room], of coordinates */
  ir_value asked; /* the first key of the next tile that is asked for while the row is at hand */
  ir_value scores, limit; /* limit: i32, of keys from the tile's first on */
} soften_row;

static ir_value lane_numbers(ir *b, int lanes) {
  ir_value numbers[64];
  for (int i = 0; i < lanes; i++) numbers[i] = i32(b, i);
  return ir_elements(b, ir_vector(b, lanes, b->i32), lanes, numbers);
}

static ir_value infinity(const attention_emitter *e) { return ir_float(e->b, e->lanes, -__builtin_inf()); }

/* Numbers of the pairs of a row. */
static ir_value numbers_at(const soften *s, int place) {
  return ir_offset_const(s->e->b, s->numbers, (int64_t)pair_places_before(s->e->p, place) * s->places.room * 4);
}

/* Where rows are that are read at computed places: of the keys of a register, or the query's. */
static ir_value row_at(const soften_row *row, int place, ir_value index) {
  const attention_emitter *e = &row->e;
  ir *b = e->b;
  if (!e->p->number[place - key_places_axes(e->p)].of_key) return row->place[place];
  ir_value rows = ir_offset_const(b, row->s->places.wide, (int64_t)place * row->s->places.room * 8),
           at = nth(b, rows, index, (int64_t)e->shape.lanes * 8);
  return ir_cast(b, "arith.fptosi", ir_load(b, ir_vector(b, e->shape.lanes, b->f64), at, 8), b->i64);
}

/* What the description makes of a product. */
static ir_value biased(const soften_row *row, ir_value score, ir_value index) {
  const attention_emitter *e = &row->e;
  ir *b = e->b;
  ir_value narrow[PAIR_NUMBERS] = {{NULL}}, place = attention_mul(b, index, e->shape.lanes * 4),
           at = ir_offset(b, row->keys, place);
  for (int axis = 0; axis < e->p->n_places; axis++) {
    if (axis == key_places_axes(e->p)) at = ir_offset(b, row->s->places.narrow, place);
    if (is_row_place(e->p, axis)) narrow[axis] = row_at(row, axis, index);
    if (is_pair_place(e->p, axis)) narrow[axis] = load(e, ir_offset(b, numbers_at(row->s, axis), place));
    if (is_row_place(e->p, axis) || is_pair_place(e->p, axis)) continue;
    ir_value keys = load(e, ir_offset_const(b, at, (int64_t)axis * row->s->places.room * 4));
    narrow[axis] = sub(b, keys, ir_broadcast(b, e->lanes, row->place[axis]));
  }
  return emit_score_at(e, row->fixed, narrow, score, true);
}

/* Scores with bias and mask go back (registers of keys that the row sees without a mask of lanes); their maximum, with
 * what was so far, in all lanes. */
static ir_value emit_maximum(const soften_row *row, ir_value so_far) {
  const soften *s = row->s;
  const attention_emitter *e = &row->e;
  ir *b = e->b;
  int lanes = e->shape.lanes;
  MlirType integers = ir_vector(b, lanes, b->i32);
  ir_value numbers = lane_numbers(b, lanes), limits = ir_broadcast(b, integers, row->limit), now, found;
  ir_value whole = ir_op2(b, "arith.divsi", row->limit, i32(b, lanes));
  whole = ir_cast(b, "arith.extsi", whole, b->i64);
  ir_loop loop = ir_for_with(b, e->zero, s->registers, 1, &so_far, &now);
  ir_value at = nth(b, row->scores, loop.index, lanes * 4), score = load(e, at);
  if (s->paired) score = biased(row, score, loop.index);
  ir_choice choice = ir_choose(b, ir_compare_int(b, "slt", loop.index, whole), 1, &e->lanes);
  ir_value side = score;
  ir_choose_else(b, &choice, 1, &side);
  ir_value key = ir_cast(b, "arith.trunci", attention_mul(b, loop.index, lanes), b->i32);
  ir_value seen = ir_compare_int(b, "slt", add(b, numbers, ir_broadcast(b, integers, key)), limits);
  side = ir_select(b, seen, score, infinity(e));
  store(e, side, at);
  ir_end_choose(b, choice, 1, &side, &score);
  if (s->paired) store(e, score, at);
  ir_value next = larger(b, score, now);
  ir_end_for_with(b, loop, 1, &next, &found);
  return ir_broadcast(b, e->lanes, emit_across(b, found, larger));
}

/* While powers are computed memory has nothing to do: with a register of them a key of the next tile is asked for, of
 * whose row values ask for the rest. */
static void ask_for_key(const soften_row *row, ir_value index) {
  enum { LINES = 2, LEAST_BYTES = 2 };
  const soften *s = row->s;
  ir *b = row->e.b;
  ir_value at = ir_offset(b, s->next, mul(b, add(b, row->asked, index), s->next_token));
  for (int line = 0; line < LINES && line * CACHE_LINE < row->e.p->head_dim * LEAST_BYTES; line++)
    ir_prefetch(b, ir_offset_const(b, at, line * CACHE_LINE), 1);
}

/* Scores become powers; their sum, lane by lane. */
static ir_value emit_powers(const soften_row *row, ir_value maximum, ir_value sum) {
  const soften *s = row->s;
  const attention_emitter *e = &row->e;
  ir *b = e->b;
  int count = s->extremes.ptr ? 3 : 1;
  ir_value begin[3] = {sum}, now[3], next[3], found[3];
  ir_value least = s->extremes, largest = s->extremes;
  if (s->extremes.ptr) {
    largest = ir_offset_const(b, s->extremes, e->shape.lanes * 4);
    begin[1] = load(e, least), begin[2] = load(e, largest);
  }
  ir_loop loop = ir_for_with(b, e->zero, s->registers, count, begin, now);
  ask_for_key(row, loop.index);
  ir_value at = nth(b, row->scores, loop.index, e->shape.lanes * 4), p = emit_exp2(b, sub(b, load(e, at), maximum));
  store(e, p, at);
  next[0] = add(b, now[0], p);
  if (s->extremes.ptr) next[1] = smaller(b, p, now[1]), next[2] = larger(b, p, now[2]);
  ir_end_for_with(b, loop, count, next, found);
  if (s->extremes.ptr) {
    store(e, found[1], least);
    store(e, found[2], largest);
  }
  return found[0];
}

/* Where a coordinate is far, displacements stand in place of the keys' coordinates, and 0 in that of the query's. */
static void displace(soften_row *row, ir_value index, ir_value is_far) {
  const soften *s = row->s;
  ir *b = row->e.b;
  row->keys = ir_select(b, is_far, s->displaced, s->places.narrow);
  ir_branch far = ir_if(b, is_far);
  ir_value arguments[] = {row->e.tile, index, s->first, s->count, i64(b, s->places.room), s->places.wide, s->displaced};
  ir_call(b, "pegen_attention_displace_row", 7, arguments);
  ir_end_if(b, far);
  for (int axis = 0; axis < key_places_axes(row->e.p); axis++)
    row->place[axis] = ir_select(b, is_far, ir_float(b, b->f32, 0), row->place[axis]);
}

static void begin_bias(soften_row *row, ir_value index) {
  attention_emitter *e = &row->e;
  ir *b = e->b;
  e->leaves = few_row_pointer(e, offsetof(pegen_attention_few, leaves), index);
  row->fixed = delta_memo(e);
  delta_emitter d = delta_emitter_create(e, row->fixed);
  emit_expr_fixed(&d.walker, e->p->score ? e->p->score : e->p->bias);
  ir_value is_far = row->s->are_far;
  for (int axis = 0; axis < e->p->n_places; axis++) {
    ir_value at = ir_offset_const(
        b, e->tile, (int64_t)offsetof(pegen_attention_tile, positions) + (int64_t)axis * PEGEN_ATTENTION_QUERIES * 8);
    ir_value place = ir_load(b, b->f64, nth(b, at, index, 8), 8);
    row->place[axis] = is_row_place(e->p, axis) ? ir_cast(b, "arith.fptosi", place, b->i64)
                                                : ir_cast(b, "arith.truncf", place, b->f32);
    if (axis < key_places_axes(e->p)) is_far = ir_op2(b, "arith.ori", is_far, emit_is_far(b, place, row->place[axis]));
  }
  displace(row, index, is_far);
  key_tile t = {.first = row->s->first, .count = row->s->count};
  for (int place = 0; place < e->p->n_places; place++)
    if (is_pair_place(e->p, place)) emit_pair_numbers(e, &t, place, index, 1, e->zero, 1, numbers_at(row->s, place));
}

static void emit_row(const soften *s, ir_value index) {
  const attention_emitter *e = s->e;
  ir *b = e->b;
  soften_row row = {.s = s, .e = *e};
  if (s->paired) begin_bias(&row, index);
  row.asked = mul(b, index, s->registers);
  row.scores = nth(b, FEW(e, scores, b->ptr), index, FEW_SCORE_BYTES);
  ir_value limits = ir_offset_const(b, e->tile, (int64_t)offsetof(pegen_attention_tile, limits));
  ir_value limit = ir_cast(b, "arith.extsi", ir_load(b, b->i32, nth(b, limits, index, 4), 4), b->i64);
  row.limit = ir_cast(b, "arith.trunci", smaller(b, sub(b, limit, s->first), s->count), b->i32);
  ir_value state = nth(b, FEW(e, state, b->ptr), index, pegen_few_state_bytes(e->p->value_dim)),
           maximum_at = ir_offset_const(b, state, few_maximum_offset(e->p)),
           sum_at = ir_offset_const(b, state, few_sum_offset(e->p)), before = load(e, maximum_at);
  ir_value maximum = emit_maximum(&row, before), decay = emit_exp2(b, sub(b, before, maximum));
  store(e, maximum, maximum_at);
  store(e, emit_powers(&row, maximum, mul(b, load(e, sum_at), decay)), sum_at);
  store(e, decay, nth(b, FEW(e, decay, b->ptr), index, FEW_DECAY_BYTES));
}

static void tell(const attention_emitter *e, ir_value power, size_t offset) {
  ir *b = e->b;
  ir_value is_zero = ir_compare_float(b, "oeq", power, ir_float(b, b->f32, 0));
  ir_store(b, ir_cast(b, "arith.extui", is_zero, b->i64), ir_offset_const(b, e->tile, (int64_t)offset), 8, false);
}

void emit_few_soften(attention_emitter *e, const char *name, bool paired) {
  ir *b = e->b;
  soften s = {.e = e, .paired = paired && (e->p->bias || e->p->score)};
  ir_open(b, name, "p", &e->tile);
  e->zero = i64(b, 0);
  s.count = FEW(e, count, b->i64), s.first = FEW(e, first, b->i64);
  s.registers = attention_groups(b, s.count, e->shape.lanes);
  find_next(&s);
  if (s.paired) {
    key_tile t = {.first = s.first, .count = s.count};
    s.places = emit_key_places_begin(e);
    s.displaced = ir_alloca(b, (int64_t)key_places_axes(e->p) * s.places.room * 4, CACHE_LINE);
    s.are_far = emit_key_places(e, &s.places, &t);
    s.numbers = ir_alloca(b, (int64_t)pair_places_before(e->p, e->p->n_places) * s.places.room * 4, CACHE_LINE);
  }
  if (e->p->hides) {
    s.extremes = ir_alloca(b, (int64_t)e->shape.lanes * 8, CACHE_LINE);
    store(e, ir_float(b, e->lanes, 1), s.extremes);
    store(e, ir_float(b, e->lanes, 0), ir_offset_const(b, s.extremes, e->shape.lanes * 4));
  }
  ir_loop rows = ir_for(b, e->zero, FEW(e, rows, b->i64));
  emit_row(&s, rows.index);
  ir_end_for(b, rows);
  if (e->p->hides) {
    tell(e, emit_across(b, load(e, s.extremes), smaller), offsetof(pegen_attention_few, some_are_zero));
    tell(e, emit_across(b, load(e, ir_offset_const(b, s.extremes, e->shape.lanes * 4)), larger),
         offsetof(pegen_attention_few, most_is_zero));
  }
  ir_return(b);
}
