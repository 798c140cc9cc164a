/* gpu/mma_seen: which streamed tiles an own tile sees, where a bias or a score hides pairs; see gpu/mma.h.
 *
 * Bounds of the two tiles' coordinates bound the displacements of their pairs, and the plan's mask says whether it
 * hides all of those (plan/mask). Loops run from the first tile that is not hidden to the last one. A tile that is left
 * out has weights of 0, so sums have the same bits without it. A warp asks of several tiles at once, a lane for some of
 * their tokens, so that loads of coordinates are under way together.
 */
#include "gpu/index.h"
#include "gpu/mma.h"

#include "kernel/launch.h"

enum { LANES = 32, TOGETHER = 4, WORDS = 2, MOST_TOKENS = MMA_MOST_HALVES * MMA_HALF * MMA_WARPS / LANES };

/* Coordinates are rounded to float32, and so is a displacement once or twice: no further than this of all together. */
static const double ROUNDED = 0x1p-21;

/* Bounds of a side's tokens: [places]. */
typedef struct side_bounds {
  ir_value least[SPEC_MAX_AXES], greatest[SPEC_MAX_AXES];
} side_bounds;

/* Whether tiles that nobody sees are looked for. */
static bool skips_tiles(const mma *m) {
  const attention_plan *p = m->t->p;
  if (!p->mask || expr_is_const(p->mask->unseen, 0)) return false;
  /* Rows of few queries are of several heads. */
  return !m->p->owns_group ||
         !(p->mask->unseen->depends & (DEPENDS_HEAD | DEPENDS_OPERAND) || attention_reads_inputs(p));
}

int64_t mma_seen_bytes(const mma *m) { return skips_tiles(m) ? 4LL * WORDS * MMA_WARPS : 0; }

/* ---- bounds ---- */

/* Whether the side's tokens have a number there. */
static bool has_place(const attention_plan *p, int place, bool of_keys) {
  int number = place - (p->n_places - p->n_numbers);
  return number < 0 ||
         (p->number[number].of_key == of_keys && !attention_is_row(p, number) && !attention_is_pair(p, number));
}

/* What a token is at each place: float32. */
static void load_token(mma *m, bool of_keys, ir_value token, ir_value *out) {
  attend *t = m->t;
  ir *b = m->b;
  const attention_plan *p = t->p;
  int parameter = of_keys ? PEGEN_PTX_ATTENTION_KEY_POSITIONS : PEGEN_PTX_ATTENTION_POSITIONS,
      axes = p->n_places - p->n_numbers;
  if (axes)
    gpu_rough_coordinates(b, p->spec, t->parameter + parameter, t->batch, attend_placed_token(t, parameter, token),
                          out);
  token = clamped(b, token, of_keys ? t->keys : t->tokens);
  for (int i = 0; i < p->n_numbers; i++)
    if (has_place(p, axes + i, of_keys)) out[axes + i] = attend_number_of(t, i, token);
}

/* Bounds of `count` tokens that the thread has, and then of those of all lanes. */
static side_bounds find_bounds(mma *m, bool of_keys, int count, const ir_value *token) {
  ir *b = m->b;
  const attention_plan *p = m->t->p;
  side_bounds s;
  for (int i = 0; i < count; i++) {
    ir_value x[SPEC_MAX_AXES];
    load_token(m, of_keys, token[i], x);
    for (int place = 0; place < p->n_places; place++) {
      if (!has_place(p, place, of_keys)) continue;
      s.least[place] = i ? ir_op2(b, "arith.minimumf", s.least[place], x[place]) : x[place];
      s.greatest[place] = i ? ir_op2(b, "arith.maximumf", s.greatest[place], x[place]) : x[place];
    }
  }
  for (int place = 0; place < p->n_places; place++)
    for (int lanes = 1; lanes < LANES && has_place(p, place, of_keys); lanes *= 2) {
      ir_value least = ir_warp_exchange(b, s.least[place], lanes);
      ir_value greatest = ir_warp_exchange(b, s.greatest[place], lanes);
      s.least[place] = ir_op2(b, "arith.minimumf", s.least[place], least);
      s.greatest[place] = ir_op2(b, "arith.maximumf", s.greatest[place], greatest);
    }
  return s;
}

/* Tokens of a tile's rows lane, lane + 32, ...; their number. */
static int own_tokens(const mma *m, ir_value *token) {
  int count = m->shape.tile.own / LANES;
  for (int i = 0; i < count; i++) token[i] = mma_own_place(m, add(m->b, m->lane, i32(m->b, i * LANES))).token;
  return count;
}

static int streamed_tokens(const mma *m, ir_value first, ir_value *token) {
  ir *b = m->b;
  int rows = m->shape.tile.streamed, count = (rows + LANES - 1) / LANES;
  ir_value lane = rows < LANES ? rest(b, m->lane, rows) : m->lane;
  for (int i = 0; i < count; i++) token[i] = add(b, first, add(b, lane, i32(b, i * LANES)));
  return count;
}

/* ---- one tile ---- */

static ir_value magnitude(ir *b, ir_value x) { return ir_op1(b, "math.absf", x); }

/* Displacements, [places][2]; i1: all of them are numbers that are not too large. */
static ir_value find_displacements(mma *m, const side_bounds *queries, const side_bounds *keys, two_float *out) {
  ir *b = m->b;
  const attention_plan *p = m->t->p;
  ir_value furthest = ir_float(b, b->f32, INTERVAL_FURTHEST), known = ir_int(b, b->i1, 1);
  for (int place = 0; place < p->n_places; place++) {
    bool of_queries = has_place(p, place, false), of_keys = has_place(p, place, true);
    ir_value bound[MASK_BOUNDS];
    if (of_queries && of_keys) {
      ir_value size = add(b, magnitude(b, keys->least[place]), magnitude(b, keys->greatest[place]));
      size = add(b, size, magnitude(b, queries->least[place]));
      size = add(b, size, magnitude(b, queries->greatest[place]));
      size = mul(b, size, ir_float(b, b->f32, ROUNDED));
      bound[0] = sub(b, keys->least[place], queries->greatest[place]);
      bound[0] = sub(b, bound[0], size);
      bound[1] = sub(b, keys->greatest[place], queries->least[place]);
      bound[1] = add(b, bound[1], size);
    } else if (!of_queries && !of_keys) { /* where a row is, or of a pair, which no mask asks */
      bound[0] = bound[1] = ir_float(b, b->f32, 0);
    } else {
      bound[0] = of_keys ? keys->least[place] : ir_op1(b, "arith.negf", queries->greatest[place]);
      bound[1] = of_keys ? keys->greatest[place] : ir_op1(b, "arith.negf", queries->least[place]);
    }
    for (int side = 0; side < MASK_BOUNDS; side++) {
      out[mask_bound(place, side)] = two_float_f32(bound[side]);
      known = both(b, known, ir_compare_float(b, "olt", magnitude(b, bound[side]), furthest));
    }
  }
  return known;
}

/* i1: pairs of the tiles whose first tokens these are may be seen. Pairs of prefix tokens have no mask. */
static ir_value may_see(mma *m, const side_bounds *own, const side_bounds *streamed, ir_value streamed_first) {
  ir *b = m->b;
  attend *t = m->t;
  thread_emitter *e = &t->exprs;
  bool owns_keys = m->p->owns_keys;
  two_float bounds[MASK_BOUNDS * SPEC_MAX_AXES];
  ir_value hidden = find_displacements(m, owns_keys ? streamed : own, owns_keys ? own : streamed, bounds);
  two_float *remembered = emit_thread_remember(e);
  e->cotangents = bounds;
  e->n_cotangents = MASK_BOUNDS * t->p->n_places;
  e->first_cotangent = 1;
  ir_value unseen = emit_thread_f32(e, t->p->mask->unseen, 0);
  e->cotangents = NULL;
  emit_thread_forget(e, remembered);
  hidden = both(b, hidden, ir_compare_float(b, "ogt", unseen, ir_float(b, b->f32, 0)));
  if (t->p->spec->skip_tokens) {
    ir_value query = owns_keys ? streamed_first
                     : m->few  ? i32(b, 0)
                               : m->own_first,
             key = owns_keys ? m->own_first : streamed_first, first_query = attend_first_query(t);
    hidden = both(b, hidden, ir_compare_int(b, "sge", query, first_query));
    hidden = both(b, hidden, ir_compare_int(b, "sge", key, i32(b, t->p->spec->skip_tokens)));
  }
  return ir_compare_int(b, "eq", hidden, ir_int(b, b->i1, 0));
}

/* ---- all tiles ---- */

/* The first of the tiles and the end of those that the warp finds seen, from [first, end), i32. */
static void ask(mma *m, const side_bounds *own, ir_value begin, ir_value end, ir_value *found) {
  ir *b = m->b;
  ir_value now[2], tiles = larger(b, sub(b, end, begin), i32(b, 0));
  found[0] = end;
  found[1] = begin;
  ir_loop loop = ir_for_with(b, i64(b, 0), wide(b, quotient_up(b, tiles, TOGETHER * MMA_WARPS)), 2, found, now);
  ir_value at = add(b, begin, scaled(b, narrow(b, loop.index), TOGETHER * MMA_WARPS)), tile[TOGETHER];
  side_bounds streamed[TOGETHER];
  for (int i = 0; i < TOGETHER; i++) {
    ir_value token[MOST_TOKENS];
    tile[i] = add(b, at, add(b, m->warp, i32(b, i * MMA_WARPS)));
    int count = streamed_tokens(m, scaled(b, tile[i], m->shape.tile.streamed), token);
    streamed[i] = find_bounds(m, !m->p->owns_keys, count, token);
  }
  for (int i = 0; i < TOGETHER; i++) {
    ir_value seen = may_see(m, own, &streamed[i], scaled(b, tile[i], m->shape.tile.streamed));
    seen = both(b, seen, less(b, tile[i], end));
    now[0] = ir_select(b, seen, smaller(b, now[0], tile[i]), now[0]);
    now[1] = ir_select(b, seen, larger(b, now[1], add(b, tile[i], i32(b, 1))), now[1]);
  }
  ir_end_for_with(b, loop, 2, now, found);
}

void mma_narrow_range(mma *m, ir_value *begin, ir_value *end) {
  ir *b = m->b;
  if (!skips_tiles(m)) return;
  ir_value token[MOST_TOKENS], found[WORDS], all[WORDS];
  int count = own_tokens(m, token);
  side_bounds own = find_bounds(m, m->p->owns_keys, count, token);
  emit_thread_operands(&m->t->exprs, &m->t->p->mask->unseen, 1);
  ask(m, &own, *begin, *end, found);
  ir_branch one = ir_if(b, ir_compare_int(b, "eq", m->lane, i32(b, 0)));
  ir_value to = ir_offset(b, m->seen_of, wide(b, scaled(b, m->warp, 4 * WORDS)));
  for (int i = 0; i < WORDS; i++) ir_store(b, found[i], ir_offset_const(b, to, 4LL * i), 4, false);
  ir_end_if(b, one);
  ir_wait(b, IR_BARRIER_BLOCK);
  for (int warp = 0; warp < MMA_WARPS; warp++)
    for (int i = 0; i < WORDS; i++) {
      ir_value x = ir_load(b, b->i32, ir_offset_const(b, m->seen_of, 4LL * (warp * WORDS + i)), 4);
      all[i] = warp == 0 ? x : i ? larger(b, all[i], x) : smaller(b, all[i], x);
    }
  *begin = all[0];
  *end = all[1];
}
