/* cpu/attention/weights: see cpu/attention/weights.h. */
#include "cpu/attention/weights.h"

#include "cpu/attention/queries.h"
#include "cpu/attention/seen.h"
#include "mlir/arith.h"
#include "mlir/exp2.h"

static const double LOG2_E = 1.44269504088896340736;

void emit_query_numbers(const attention_emitter *e, ir_value pointer, ir_value token_bytes, double empty,
                        ir_value room) {
  ir *b = e->b;
  MlirType type = b->f32;
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.vectors * e->shape.lanes));
  ir_value token = attention_lane_token(e, e->zero, lanes.index), other = ir_float(b, b->f32, empty), x;
  ir_choice given = ir_choose(b, ir_compare_int(b, "sge", token, e->zero), 1, &type);
  ir_value there = ir_load(b, b->f32, ir_offset(b, pointer, mul(b, token, token_bytes)), 4);
  ir_choose_else(b, &given, 1, &there);
  ir_end_choose(b, given, 1, &other, &x);
  ir_store(b, x, nth(b, room, lanes.index, 4), 4, false);
  ir_end_for(b, lanes);
}

void emit_score_lse(const attention_emitter *e, ir_value room) {
  ir *b = e->b;
  ir_value least = ir_float(b, e->lanes, -__builtin_inf()), most = ir_float(b, e->lanes, __builtin_inf());
  ir_value step = ATTENTION_TILE(e, lse_token, b->i64);
  emit_query_numbers(e, ATTENTION_HEAD(e, lse), step, -__builtin_inf(), room);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value at = attention_at_constant(e, room, 0, x), lse = load(e, at),
             scaled = mul(b, lse, ir_float(b, e->lanes, LOG2_E));
    ir_value constant = e->p->columns ? emit_columns_constant(e, x) : (ir_value){NULL};
    if (constant.ptr) scaled = sub(b, scaled, constant);
    store(e, ir_select(b, ir_compare_float(b, "oeq", lse, least), most, scaled), at);
  }
}

/* Scores become P. */
static void emit_powers(const attention_emitter *e, ir_value lse_room, const key_tile *t) {
  ir *b = e->b;
  ir_value lse[ATTENTION_MAX_VECTORS], hidden = ir_float(b, e->lanes, -__builtin_inf());
  for (int x = 0; x < e->shape.vectors; x++) lse[x] = load(e, attention_at_constant(e, lse_room, 0, x));
  ir_loop keys = ir_for(b, e->zero, t->count);
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value at = attention_at(e, t->scores, keys.index, x), score = load(e, at);
    ir_value p = emit_exp2(b, sub(b, score, lse[x]));
    store(e, ir_select(b, ir_compare_float(b, "oeq", score, hidden), ir_float(b, e->lanes, 0), p), at);
  }
  ir_end_for(b, keys);
}

void emit_tile_weights(const score_emitter *s, ir_value lse, const key_tile *t) {
  const attention_emitter *e = s->e;
  ir_value maxima[ATTENTION_MAX_VECTORS]; /* which nobody asks for */
  for (int x = 0; x < e->shape.vectors; x++) maxima[x] = ir_float(e->b, e->lanes, 0);
  emit_scores(s, t, maxima);
  if (t->paired && e->p->matrix) emit_pair_rotations(s->pairs, t);
  if (t->paired && (e->p->matrix || e->p->score)) emit_final_maxima(s, t, maxima);
  emit_powers(e, lse, t);
}

void emit_keys_between(const pair_emitter *pairs, ir_value begin, ir_value end, emit_key_tile_function *visit,
                       void *context) {
  const attention_emitter *e = pairs->e;
  ir *b = e->b;
  bool has_pairs = attention_has_pairs(e->p);
  ir_value plain = has_pairs ? smaller(b, ATTENTION_TILE(e, plain, b->i64), end) : end;
  if (!has_pairs || e->p->spec->skip_tokens > 0)
    emit_key_tiles(pairs, smaller(b, begin, plain), plain, false, visit, context);
  if (!has_pairs) return;
  ir_value first = larger(b, begin, plain), last = larger(b, first, end);
  emit_key_tiles(pairs, first, last, true, visit, context);
}
