/* gpu/cayley: see gpu/cayley.h. */
#include "gpu/cayley.h"

#include "gpu/index.h"
#include "mlir/two_float.h"

enum { QUAD = TEAM_QUAD, QUAD_BYTES = 4 * QUAD, ROWS = QUAD, SIDES = TEAM_SIDES, TILE = TEAM_TILE };

/* What passes through shared memory at a step: high and low parts of the pivot's row, then of its column. Steps
 * take turns with two such sets, so that one barrier a step is enough. */
enum { ROW_HIGH, ROW_LOW, COLUMN_HIGH, COLUMN_LOW, PARTS };

static ir_value is_equal(ir *b, ir_value x, ir_value y) { return ir_compare_int(b, "eq", x, y); }
static ir_value zero(ir *b) { return ir_float(b, b->f32, 0); }
static ir_value low(ir *b, two_float x) { return x.lo.ptr ? x.lo : zero(b); }

static ir_value part_quad(matrix_team *g, int set, int part, ir_value quad) {
  ir *b = g->b;
  return team_bytes(g, add(b, scaled(b, quad, QUAD_BYTES), i32(b, 4LL * g->padded * (set * PARTS + part))));
}

static void store_quads(matrix_team *g, int set, int part, ir_value quad, const two_float *x) {
  ir *b = g->b;
  ir_value high[QUAD], rest[QUAD];
  for (int i = 0; i < QUAD; i++) high[i] = x[i].hi, rest[i] = low(b, x[i]);
  ir_store(b, ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, high), part_quad(g, set, part, quad), QUAD_BYTES, false);
  ir_store(b, ir_elements(b, ir_vector(b, QUAD, b->f32), QUAD, rest), part_quad(g, set, part + 1, quad), QUAD_BYTES,
           false);
}

static void load_quads(matrix_team *g, int set, int part, ir_value quad, two_float *x) {
  ir *b = g->b;
  ir_value high = ir_load(b, ir_vector(b, QUAD, b->f32), part_quad(g, set, part, quad), QUAD_BYTES);
  ir_value rest = ir_load(b, ir_vector(b, QUAD, b->f32), part_quad(g, set, part + 1, quad), QUAD_BYTES);
  for (int i = 0; i < QUAD; i++) x[i] = (two_float){.hi = ir_extract(b, high, i), .lo = ir_extract(b, rest, i)};
}

/* Who has the row and the column of the pivot puts them where all can read them. pivot: row 4 four + k. */
static void share_pivot(matrix_team *g, int set, ir_value four, int k, const two_float *tile) {
  ir *b = g->b;
  ir_branch branch = ir_if(b, is_equal(b, g->row, four));
  for (int side = 0; side < SIDES; side++)
    store_quads(g, set, ROW_HIGH, team_side(g, side), tile + (k * SIDES + side) * QUAD);
  ir_end_if(b, branch);
  for (int side = 0; side < SIDES; side++) {
    two_float column[ROWS];
    for (int i = 0; i < ROWS; i++) column[i] = tile[(i * SIDES + side) * QUAD + k];
    branch = ir_if(b, is_equal(b, team_side(g, side), four));
    store_quads(g, set, COLUMN_HIGH, g->row, column);
    ir_end_if(b, branch);
  }
  ir_wait(b, IR_BARRIER_BLOCK);
}

/* One step: row k becomes q = (row k, 1 in the place of the pivot) / pivot, every other row i loses a_ik q, its a_ik
 * counting as 0 before. */
static void eliminate(matrix_team *g, ir_value four, int k, two_float *tile) {
  ir *b = g->b;
  two_float column[ROWS], q[SIDES * QUAD], one = {.hi = ir_float(b, b->f32, 1), .lo = zero(b)},
                                           none = {.hi = zero(b), .lo = zero(b)};
  int set = k % 2;
  share_pivot(g, set, four, k, tile);
  two_float pivots[QUAD];
  load_quads(g, set, ROW_HIGH, four, pivots);
  two_float inverse = two_float_div(b, one, pivots[k]);
  load_quads(g, set, COLUMN_HIGH, g->row, column);
  column[k] = two_float_select(b, is_equal(b, g->row, four), two_float_neg(b, one), column[k]);
  for (int side = 0; side < SIDES; side++) {
    load_quads(g, set, ROW_HIGH, team_side(g, side), q + side * QUAD);
    q[side * QUAD + k] = two_float_select(b, is_equal(b, team_side(g, side), four), one, q[side * QUAD + k]);
  }
  for (int j = 0; j < SIDES * QUAD; j++) q[j] = two_float_mul(b, q[j], inverse);
  for (int i = 0; i < TILE; i++) {
    int row = i / (SIDES * QUAD), j = i % (SIDES * QUAD);
    two_float x = tile[i];
    if (j % QUAD == k) x = two_float_select(b, is_equal(b, team_side(g, j / QUAD), four), none, x);
    if (row == k) x = two_float_select(b, is_equal(b, g->row, four), none, x);
    tile[i] = two_float_add_loosely(b, x, two_float_neg(b, two_float_mul_loosely(b, column[row], q[j])));
  }
}

void team_cayley(matrix_team *g, bool is_transposed) {
  ir *b = g->b;
  ir_value matrix[TILE], carried[2 * TILE];
  two_float tile[TILE];
  ir_wait(b, IR_BARRIER_BLOCK);
  team_read(g, TEAM_LEFT, matrix);
  for (int i = 0; i < TILE; i++) {
    carried[2 * i] = team_plus_diagonal(g, i, matrix[i], ir_float(b, b->f32, 1));
    carried[2 * i + 1] = zero(b);
  }
  ir_value current[2 * TILE];
  ir_loop loop = ir_for_with(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, g->padded / QUAD), 2 * TILE, carried, current);
  ir_value four = ir_cast(b, "arith.trunci", loop.index, b->i32);
  for (int i = 0; i < TILE; i++) tile[i] = (two_float){.hi = current[2 * i], .lo = current[2 * i + 1]};
  for (int k = 0; k < QUAD; k++) eliminate(g, four, k, tile);
  for (int i = 0; i < TILE; i++) current[2 * i] = tile[i].hi, current[2 * i + 1] = low(b, tile[i]);
  ir_end_for_with(b, loop, 2 * TILE, current, carried);
  for (int i = 0; i < TILE; i++) {
    ir_value minus_half = ir_float(b, b->f32, -0.5);
    two_float less = {.hi = team_plus_diagonal(g, i, zero(b), minus_half), .lo = {NULL}};
    ir_value half = two_float_narrow(
        b,
        two_float_add_loosely(b, (two_float){.hi = carried[2 * i], .lo = carried[2 * i + 1], .is_loose = true}, less));
    matrix[i] = add(b, half, half);
  }
  if (is_transposed) team_write_transposed(g, TEAM_LEFT, matrix);
  else team_write(g, TEAM_LEFT, matrix);
  ir_wait(b, IR_BARRIER_BLOCK);
}
