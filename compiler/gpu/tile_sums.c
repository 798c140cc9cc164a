/* gpu/tile_sums: what a thread makes of a tile's rows and columns, products and sums by weights; see gpu/attention.h.
 *
 * Attention's rows are queries and its columns keys; its gradients have both ways (gpu/attention_backward).
 */
#include "gpu/attention.h"
#include "gpu/index.h"

#include "kernel/launch.h"

#include <math.h>

enum { TEAMS = PEGEN_PTX_BLOCK / ATTEND_LANES, QUAD_CHANNELS = ATTEND_QUAD * ATTEND_LANES };

ir_value attend_short_parameter(attend *t, int index) {
  return ir_cast(t->b, "arith.trunci", t->parameter[index], t->b->i32);
}

ir_value attend_scale(attend *t) {
  return ir_cast(t->b, "arith.bitcast", attend_short_parameter(t, PEGEN_PTX_ATTENTION_SCALE), t->b->f32);
}

/* ---- the block's tile ---- */

ir_value attend_set_tile(attend *t, ir_value item, ir_value rows, ir_value heads, bool last_first) {
  ir *b = t->b;
  ir_value tiles = quotient_up(b, rows, t->shape.queries);
  ir_value row = ir_op2(b, "arith.divui", item, tiles), tile = ir_op2(b, "arith.remui", item, tiles);
  if (last_first) tile = sub(b, sub(b, tiles, i32(b, 1)), tile);
  t->first = scaled(b, tile, t->shape.queries);
  t->batch = ir_op2(b, "arith.divui", row, heads);
  return ir_op2(b, "arith.remui", row, heads);
}

/* ---- a thread's rows and columns of the tile ---- */

ir_value attend_own_row(attend *t, int row) { return add(t->b, t->team, i32(t->b, (int64_t)row * TEAMS)); }

ir_value attend_own_column(attend *t, int column) {
  return add(t->b, t->lane, i32(t->b, (int64_t)column * ATTEND_LANES));
}

ir_value attend_row_of_thread(attend *t, ir_value row) { return add(t->b, t->team, scaled(t->b, row, TEAMS)); }

ir_value attend_column_of_thread(attend *t, ir_value column) {
  return add(t->b, t->lane, scaled(t->b, column, ATTEND_LANES));
}

ir_value attend_score_at(attend *t, ir_value row, ir_value column) {
  ir *b = t->b;
  return ir_offset(b, t->scores, wide(b, scaled(b, add(b, scaled(b, row, t->shape.score_pitch), column), 4)));
}

ir_value attend_own_word(attend *t, ir_value row) {
  ir_value column = add(t->b, t->lane, i32(t->b, t->shape.keys));
  return attend_score_at(t, row, column);
}

void attend_all_words(attend *t, ir_value row, ir_value *words) {
  ir *b = t->b;
  ir_value end = i32(b, t->shape.keys), at = attend_score_at(t, row, end);
  for (int half = 0; half < ATTEND_LANES; half += ATTEND_QUAD) {
    ir_value four = ir_load(b, ir_vector(b, ATTEND_QUAD, b->f32), ir_offset_const(b, at, 4LL * half), 16);
    for (int i = 0; i < ATTEND_QUAD; i++) words[half + i] = ir_extract(b, four, i);
  }
}

ir_value attend_sum_words(attend *t, ir_value row) {
  ir_value words[ATTEND_LANES];
  attend_all_words(t, row, words);
  ir_value sum = words[0];
  for (int lane = 1; lane < ATTEND_LANES; lane++) sum = add(t->b, sum, words[lane]);
  return sum;
}

/* ---- products ---- */

void attend_add_products(attend *t, attend_matrix x, attend_matrix y, int begin, int end, int step, ir_value *sums) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  MlirType type = step > 1 ? ir_vector(b, step, b->f32) : b->f32;
  ir_value x_row[ATTEND_MOST_ROWS], y_row[ATTEND_MOST_ROWS], p[ATTEND_MOST_ROWS], q[ATTEND_MOST_ROWS],
      now[ATTEND_MOST_PAIRS];
  for (int i = 0; i < s->rows; i++) x_row[i] = attend_row_at(t, x.memory, attend_own_row(t, i), x.pitch);
  for (int j = 0; j < s->columns; j++) y_row[j] = attend_row_at(t, y.memory, attend_own_column(t, j), y.pitch);
  ir_loop loop = ir_for_with(b, i64(b, begin / step), i64(b, (end + step - 1) / step), s->rows * s->columns, sums, now);
  ir_value at = mul(b, loop.index, i64(b, 4LL * step));
  for (int i = 0; i < s->rows; i++) p[i] = ir_load(b, type, ir_offset(b, x_row[i], at), 4 * step);
  for (int j = 0; j < s->columns; j++) q[j] = ir_load(b, type, ir_offset(b, y_row[j], at), 4 * step);
  for (int i = 0; i < s->rows; i++)
    for (int j = 0; j < s->columns; j++)
      for (int c = 0; c < step; c++) {
        ir_value *sum = &now[i * s->columns + j];
        *sum = ir_fma(b, step > 1 ? ir_extract(b, p[i], c) : p[i], step > 1 ? ir_extract(b, q[j], c) : q[j], *sum);
      }
  ir_end_for_with(b, loop, s->rows * s->columns, now, sums);
}

/* ---- sums of rows by weights ---- */

/* Four columns of the tile at a time; spoilt: nothing of a row whose weight is 0. */
static void add_rows(attend *t, attend_matrix rows, int quads, bool spoilt, ir_value *sums) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  int count = s->rows * quads;
  MlirType four = ir_vector(b, ATTEND_QUAD, b->f32);
  ir_value next[ATTEND_MOST_SUMS], p_row[ATTEND_MOST_ROWS], p[ATTEND_MOST_ROWS];
  for (int i = 0; i < s->rows; i++) {
    ir_value none = i32(b, 0);
    p_row[i] = attend_score_at(t, attend_own_row(t, i), none);
  }
  ir_value channels = ir_offset(b, rows.memory, wide(b, scaled(b, t->lane, 4 * ATTEND_QUAD)));
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, s->keys / ATTEND_QUAD), count, sums, next);
  ir_value at = mul(b, loop.index, i64(b, 4 * ATTEND_QUAD)),
           four_rows = ir_offset(b, channels, mul(b, at, i64(b, rows.pitch)));
  for (int i = 0; i < s->rows; i++) p[i] = ir_load(b, four, ir_offset(b, p_row[i], at), 16);
  for (int column = 0; column < ATTEND_QUAD; column++)
    for (int quad = 0; quad < quads; quad++) {
      ir_value v =
          ir_load(b, four, ir_offset_const(b, four_rows, 4LL * (column * rows.pitch + quad * QUAD_CHANNELS)), 16);
      for (int i = 0; i < s->rows; i++) {
        ir_value *sum = &next[i * quads + quad], one = ir_extract(b, p[i], column);
        ir_value more = ir_fma(b, ir_broadcast(b, four, one), v, *sum);
        *sum = spoilt ? ir_select(b, ir_compare_float(b, "oeq", one, ir_float(b, b->f32, 0)), *sum, more) : more;
      }
    }
  ir_end_for_with(b, loop, count, next, sums);
}

void attend_add_rows(attend *t, attend_matrix rows, int quads, ir_value *sums) {
  ir *b = t->b;
  int count = t->shape.rows * quads;
  MlirType types[ATTEND_MOST_SUMS];
  ir_value each[2][ATTEND_MOST_SUMS];
  for (int i = 0; i < count; i++) {
    types[i] = ir_type(sums[i]);
    each[0][i] = each[1][i] = sums[i];
  }
  ir_value spoilt = ir_compare_int(b, "ne", ir_load(b, b->i32, t->spoilt, 4), i32(b, 0));
  ir_choice choice = ir_choose(b, spoilt, count, types);
  add_rows(t, rows, quads, true, each[0]);
  ir_choose_else(b, &choice, count, each[0]);
  add_rows(t, rows, quads, false, each[1]);
  ir_end_choose(b, choice, count, each[1], sums);
}

/* ---- what a pair is seen by ---- */

ir_value attend_paired(attend *t, ir_value score, ir_value pair) {
  ir *b = t->b;
  ir_value sum = add(b, score, pair), hidden = ir_float(b, b->f32, -INFINITY);
  return t->p->hides && t->p->bias ? ir_select(b, ir_compare_float(b, "oeq", pair, hidden), hidden, sum) : sum;
}

ir_value attend_limit_of(attend *t, ir_value query_token) {
  ir *b = t->b;
  ir_value causal = ir_compare_int(b, "ne", t->parameter[PEGEN_PTX_ATTENTION_CAUSAL], i64(b, 0));
  ir_value own = add(b, add(b, query_token, sub(b, t->keys, t->tokens)), i32(b, 1));
  return ir_select(b, causal, smaller(b, own, t->keys), t->keys);
}

ir_value attend_end_of_keys(attend *t) {
  ir *b = t->b;
  ir_value last = sub(b, smaller(b, add(b, t->first, i32(b, t->shape.queries)), t->tokens), i32(b, 1)),
           end = attend_limit_of(t, last);
  return ir_select(b, less(b, end, i32(b, 0)), i32(b, 0), end);
}
