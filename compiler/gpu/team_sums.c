/* gpu/team_sums: see gpu/team_sums.h. */
#include "gpu/team_sums.h"

#include "gpu/index.h"

enum { QUAD = TEAM_QUAD, SIDES = TEAM_SIDES, TILE = TEAM_TILE };

/* ---- sums over rows ---- */

/* One row of those in shared memory: g_i y_j for the thread's tile, y's rows behind those of g. */
static void add_row(team_rows *r, ir_value row, int64_t behind, ir_value *sum) {
  ir *b = r->b;
  MlirType vector = ir_vector(b, QUAD, b->f32);
  ir_value g = ir_load(b, vector, team_row_address(r, row, scaled(b, r->team->row, QUAD)), 4 * QUAD), y[SIDES];
  for (int side = 0; side < SIDES; side++) {
    ir_value at = team_row_address(r, row, scaled(b, team_side(r->team, side), QUAD));
    y[side] = ir_load(b, vector, ir_offset_const(b, at, behind), 4 * QUAD);
  }
  for (int i = 0; i < TILE; i++)
    sum[i] = ir_fma(b, ir_extract(b, g, i / (SIDES * QUAD)), ir_extract(b, y[i / QUAD % SIDES], i % QUAD), sum[i]);
}

/* Rows of gradients, and behind them what was kept of those. */
static void rows_in(team_rows *r, team_rows *second, const row_origin *origin, const row_origin *kept, ir_value first) {
  team_rows_in(r, origin, first);
  team_rows_in(second, kept, first);
  ir_wait(r->b, IR_BARRIER_BLOCK);
}

void team_sum_rows(team_rows *r, row_thread *of_kept, const row_origin *origin, ir_value *out) {
  team_rows second = *r;
  ir *b = r->b;
  gpu_body *t = r->body;
  int flight = team_flight(r->blocks->size);
  int64_t behind = 4LL * flight * r->team->padded;
  ir_value zero[TILE], sum[TILE];
  two_float all[TILE];
  row_origin kept = emit_row_origin(of_kept, &t->owner, i64(b, 0));
  for (int i = 0; i < TILE; i++) {
    zero[i] = ir_float(b, b->f32, 0);
    all[i] = two_float_f32(zero[i]);
  }
  second.source = of_kept;
  second.base = behind;
  team_rows_clear(r);
  team_rows_clear(&second);
  ir_value steps = quotient(b, add(b, sub(b, t->end, t->begin), i32(b, flight - 1)), flight);
  ir_loop loop = two_float_for(b, i64(b, 0), wide(b, steps), TILE, all);
  ir_value first = add(b, t->begin, scaled(b, narrow(b, loop.index), flight)), left = sub(b, t->end, first);
  rows_in(r, &second, origin, &kept, first);
  ir_value rows = ir_select(b, less(b, left, i32(b, flight)), left, i32(b, flight));
  ir_loop each = ir_for_with(b, i64(b, 0), wide(b, rows), TILE, zero, sum);
  add_row(r, narrow(b, each.index), behind, sum);
  ir_end_for_with(b, each, TILE, sum, sum);
  for (int i = 0; i < TILE; i++) all[i] = two_float_add(b, all[i], two_float_f32(sum[i]));
  ir_wait(b, IR_BARRIER_BLOCK);
  two_float_end_for(b, loop, TILE, all);
  for (int i = 0; i < TILE; i++) out[i] = add(b, all[i].hi, all[i].lo);
}

/* ---- matrices by rows ---- */

/* Returns the address of quad `side` of row i of the thread's tile. */
static ir_value quad_of_line(team_rows *r, int i, int side) {
  ir *b = r->b;
  ir_value row = add(b, scaled(b, r->team->row, QUAD), i32(b, i));
  return team_row_address(r, row, scaled(b, team_side(r->team, side), QUAD));
}

void team_store_lines(team_rows *r, const ir_value *tile) {
  ir *b = r->b;
  for (int q = 0; q < QUAD * SIDES; q++)
    ir_store(b, ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, tile + q * QUAD),
             quad_of_line(r, q / SIDES, q % SIDES), 4 * QUAD, false);
}

void team_load_lines(team_rows *r, ir_value *tile) {
  ir *b = r->b;
  for (int q = 0; q < QUAD * SIDES; q++) {
    ir_value quad = ir_load(b, ir_vector(b, QUAD, b->f32), quad_of_line(r, q / SIDES, q % SIDES), 4 * QUAD);
    for (int j = 0; j < QUAD; j++) tile[q * QUAD + j] = ir_extract(b, quad, j);
  }
}
