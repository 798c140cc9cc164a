/* gpu/exponential: products by tiles in registers, operands in shared memory; see gpu/exponential.h. */
#include "gpu/exponential.h"

#include "gpu/index.h"
#include "mlir/exp2.h"

#include "kernel/launch.h"

#include <math.h>
#include <stdio.h>

enum {
  QUAD = TEAM_QUAD,
  QUAD_BYTES = 4 * QUAD,
  ROWS = QUAD,
  SIDES = TEAM_SIDES,
  TILE = TEAM_TILE,
  MOST_SQUARINGS = 40,
  BLOCKS_OF_THREE = 3
};
enum { MOST_NAME = 160 };

static ir_value bits_of(ir *b, ir_value x, int64_t y) { return ir_op2(b, "arith.andi", x, i32(b, y)); }
static ir_value either(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.xori", x, y); }
static MlirType quad_type(ir *b) { return ir_vector(b, QUAD, b->f32); }

int team_padded(int size) { return size <= 16 ? 16 : size <= 32 ? 32 : 64; }

int team_threads(int size) { return team_padded(size) * team_padded(size) / TILE; }

/* ---- shared memory: two matrices a team, then a number a thread ---- */

static int64_t operand_bytes(const matrix_team *g) { return 4LL * g->padded * g->padded; }
static int teams_of(const matrix_team *g) { return PEGEN_PTX_BLOCK / g->threads; }

static void shared_name(char *name, const char *entry) { snprintf(name, MOST_NAME, "%s_matrices", entry); }

static ir_value shared(matrix_team *g, ir_value at) {
  char name[MOST_NAME];
  shared_name(name, g->name);
  return ir_offset(g->b, ir_shared_address(g->b, name), ir_cast(g->b, "arith.extui", at, g->b->i64));
}

matrix_team team_open(ir *b, const char *entry, int size, ir_value thread) {
  matrix_team g = {.b = b,
                   .name = entry,
                   .size = size,
                   .padded = team_padded(size),
                   .threads = team_threads(size),
                   .thread = thread};
  char name[MOST_NAME];
  shared_name(name, entry);
  ir_shared(b, name, SIDES * operand_bytes(&g) * teams_of(&g) + 4 * PEGEN_PTX_BLOCK);
  g.index = ir_op2(b, "arith.divui", thread, i32(b, g.threads));
  g.lane = ir_op2(b, "arith.remui", thread, i32(b, g.threads));
  g.row = ir_op2(b, "arith.divui", g.lane, i32(b, g.padded / (SIDES * QUAD)));
  g.column = ir_op2(b, "arith.remui", g.lane, i32(b, g.padded / (SIDES * QUAD)));
  return g;
}

static ir_value matrix_at(matrix_team *g, int matrix, ir_value at) {
  ir *b = g->b;
  ir_value base = scaled(b, g->index, 2 * operand_bytes(g));
  if (matrix == TEAM_RIGHT) base = add(b, base, i32(b, operand_bytes(g)));
  return shared(g, add(b, base, at));
}

ir_value team_bytes(matrix_team *g, ir_value at) { return matrix_at(g, TEAM_RIGHT, at); }

/* Quads of rows 4 r ... 4 r + 3 lie at the places quad xor r, as far as there are eight (or all) of them. */
static int swizzle_mask(const matrix_team *g) { return g->padded / QUAD < 8 ? g->padded / QUAD - 1 : 7; }

static ir_value quad_in_rows(matrix_team *g, int matrix, ir_value four_rows, ir_value quad) {
  ir *b = g->b;
  ir_value place = either(b, quad, bits_of(b, four_rows, swizzle_mask(g)));
  return matrix_at(g, matrix,
                   add(b, scaled(b, four_rows, (int64_t)QUAD * 4 * g->padded), scaled(b, place, QUAD_BYTES)));
}

ir_value team_quad(matrix_team *g, int matrix, ir_value row, ir_value quad) {
  ir *b = g->b;
  ir_value within = scaled(b, bits_of(b, row, QUAD - 1), 4LL * g->padded);
  ir_value rows = quad_in_rows(g, matrix, ir_op2(b, "arith.shrui", row, i32(b, 2)), quad);
  return ir_offset(b, rows, ir_cast(b, "arith.extui", within, b->i64));
}

/* ---- tiles ---- */

ir_value team_side(matrix_team *g, int side) {
  return side ? add(g->b, g->column, i32(g->b, g->padded / (SIDES * QUAD))) : g->column;
}

void team_read(matrix_team *g, int matrix, ir_value *tile) {
  ir *b = g->b;
  for (int side = 0; side < SIDES; side++) {
    ir_value rows = quad_in_rows(g, matrix, g->row, team_side(g, side));
    for (int i = 0; i < ROWS; i++) {
      ir_value quad = ir_load(b, quad_type(b), ir_offset_const(b, rows, 4LL * g->padded * i), QUAD_BYTES);
      for (int j = 0; j < QUAD; j++) tile[(i * SIDES + side) * QUAD + j] = ir_extract(b, quad, j);
    }
  }
}

void team_write(matrix_team *g, int matrix, const ir_value *tile) {
  ir *b = g->b;
  for (int side = 0; side < SIDES; side++) {
    ir_value rows = quad_in_rows(g, matrix, g->row, team_side(g, side));
    for (int i = 0; i < ROWS; i++)
      ir_store(b, ir_elements(b, quad_type(b), QUAD, tile + (i * SIDES + side) * QUAD),
               ir_offset_const(b, rows, 4LL * g->padded * i), QUAD_BYTES, false);
  }
}

void team_write_transposed(matrix_team *g, int matrix, const ir_value *tile) {
  ir *b = g->b;
  for (int side = 0; side < SIDES; side++) {
    ir_value rows = quad_in_rows(g, matrix, team_side(g, side), g->row);
    for (int j = 0; j < QUAD; j++) {
      ir_value column[ROWS];
      for (int i = 0; i < ROWS; i++) column[i] = tile[(i * SIDES + side) * QUAD + j];
      ir_store(b, ir_elements(b, quad_type(b), QUAD, column), ir_offset_const(b, rows, 4LL * g->padded * j), QUAD_BYTES,
               false);
    }
  }
}

void team_product(matrix_team *g, int left, int right, ir_value *tile) {
  ir *b = g->b;
  ir_value zero[TILE], sum[TILE];
  for (int i = 0; i < TILE; i++) zero[i] = ir_float(b, b->f32, 0);
  ir_loop loop = ir_for_with(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, g->padded / QUAD), TILE, zero, sum);
  ir_value four = narrow(b, loop.index), at[1 + SIDES];
  at[0] = quad_in_rows(g, left, four, g->row);
  for (int side = 0; side < SIDES; side++) at[1 + side] = quad_in_rows(g, right, four, team_side(g, side));
  for (int k = 0; k < QUAD; k++) {
    ir_value quad[1 + SIDES];
    for (int q = 0; q <= SIDES; q++)
      quad[q] = ir_load(b, quad_type(b), ir_offset_const(b, at[q], 4LL * g->padded * k), QUAD_BYTES);
    for (int i = 0; i < TILE; i++) {
      ir_value x = ir_extract(b, quad[0], i / (SIDES * QUAD)), y = ir_extract(b, quad[1 + i / QUAD % SIDES], i % QUAD);
      sum[i] = ir_fma(b, x, y, sum[i]);
    }
  }
  ir_end_for_with(b, loop, TILE, sum, tile);
}

static void scale(ir *b, ir_value *tile, ir_value factor) {
  for (int i = 0; i < TILE; i++) tile[i] = mul(b, tile[i], factor);
}

/* ---- norms ---- */

ir_value team_sum(matrix_team *g, ir_value own) {
  ir *b = g->b;
  int64_t sums = SIDES * operand_bytes(g) * teams_of(g);
  ir_value none[QUAD], sum[QUAD];
  ir_store(b, own, shared(g, add(b, scaled(b, g->thread, 4), i32(b, sums))), 4, false);
  ir_wait(b, IR_BARRIER_BLOCK);
  for (int i = 0; i < QUAD; i++) none[i] = ir_float(b, b->f32, 0);
  ir_loop loop = ir_for_with(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, g->threads / QUAD), QUAD, none, sum);
  ir_value at = add(b, scaled(b, g->index, 4LL * g->threads), scaled(b, narrow(b, loop.index), QUAD_BYTES));
  ir_value quad = ir_load(b, quad_type(b), shared(g, add(b, at, i32(b, sums))), QUAD_BYTES);
  for (int i = 0; i < QUAD; i++) sum[i] = add(b, sum[i], ir_extract(b, quad, i));
  ir_end_for_with(b, loop, QUAD, sum, none);
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_value low = add(b, none[0], none[1]);
  return add(b, low, add(b, none[2], none[3]));
}

/* The sum of the squares of all numbers of the team's tiles. */
static ir_value sum_of_squares(matrix_team *g, const ir_value *tile) {
  ir *b = g->b;
  ir_value own = mul(b, tile[0], tile[0]);
  for (int i = 1; i < TILE; i++) own = ir_fma(b, tile[i], tile[i], own);
  return team_sum(g, own);
}

static ir_value within(ir *b, ir_value x, int64_t least, int64_t most) {
  x = ir_select(b, ir_compare_int(b, "slt", x, i32(b, least)), i32(b, least), x);
  return ir_select(b, ir_compare_int(b, "sgt", x, i32(b, most)), i32(b, most), x);
}

/* The largest of the teams' numbers. */
static ir_value largest(matrix_team *g, ir_value own) {
  ir *b = g->b;
  int64_t at = SIDES * operand_bytes(g) * teams_of(g);
  if (teams_of(g) == 1) return own;
  ir_store(b, own, shared(g, add(b, scaled(b, g->thread, 4), i32(b, at))), 4, false);
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_value most = own;
  for (int i = 0; i < teams_of(g); i++) {
    ir_value other = ir_load(b, b->i32, shared(g, i32(b, at + 4LL * g->threads * i)), 4);
    most = ir_select(b, ir_compare_int(b, "sgt", other, most), other, most);
  }
  return most;
}

/* ---- the polynomial ---- */

/* 1/k! of the identity, M and M^2, from the last three to the first; without the 1 of the identity. */
static const char *terms_table(matrix_team *g, char *name) {
  float values[BLOCKS_OF_THREE * QUAD] = {0};
  double factorial = 1;
  for (int k = 1; k < 3 * BLOCKS_OF_THREE; k++) {
    factorial *= k;
    values[(BLOCKS_OF_THREE - 1 - k / 3) * QUAD + k % 3] = (float)(1 / factorial);
  }
  snprintf(name, MOST_NAME, "%s_terms", g->name);
  ir_table(g->b, name, BLOCKS_OF_THREE * QUAD, values, NULL);
  return name;
}

ir_value team_plus_diagonal(matrix_team *g, int i, ir_value x, ir_value value) {
  ir *b = g->b;
  if (i / (SIDES * QUAD) != i % QUAD) return x;
  ir_value diagonal = ir_compare_int(b, "eq", g->row, team_side(g, i / QUAD % SIDES));
  return add(b, x, ir_select(b, diagonal, value, ir_float(b, b->f32, 0)));
}

/* c[0] + c[1] M + c[2] M^2, an element of the tile. */
static ir_value three_terms(matrix_team *g, const ir_value *c, const ir_value *m, const ir_value *m2, int i) {
  return team_plus_diagonal(g, i, ir_fma(g->b, c[1], m[i], mul(g->b, c[2], m2[i])), c[0]);
}

/* The left matrix is M^3, the tiles are of M, M^2, M^3; the right matrix becomes the polynomial less the identity. */
static void sum_series(matrix_team *g, const ir_value *m, const ir_value *m2, const ir_value *m3) {
  ir *b = g->b;
  char name[MOST_NAME];
  ir_value tile[TILE], c[3];
  double factorial = 362880; /* 9! */
  ir_value highest = ir_float(b, b->f32, 1 / (factorial * 10 * 11 * 12));
  for (int k = 0; k < 3; k++) {
    c[k] = ir_float(b, b->f32, 1 / factorial);
    factorial *= 10 + k;
  }
  for (int i = 0; i < TILE; i++) tile[i] = ir_fma(b, highest, m3[i], three_terms(g, c, m, m2, i));
  team_write(g, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  terms_table(g, name);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, BLOCKS_OF_THREE));
  ir_value at = ir_offset(b, ir_table_address(b, name), mul(b, loop.index, ir_int(b, b->i64, QUAD_BYTES)));
  for (int k = 0; k < 3; k++) c[k] = ir_load(b, b->f32, ir_offset_const(b, at, 4LL * k), 4);
  team_product(g, TEAM_LEFT, TEAM_RIGHT, tile); /* less M^3 times it, M^3 being skew */
  for (int i = 0; i < TILE; i++) tile[i] = sub(b, three_terms(g, c, m, m2, i), tile[i]);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read */
  team_write(g, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have written */
  ir_end_for(b, loop);
}

/* Squarings for a matrix that 2^-exponent scaled: ||M||^6 is at most half the sum of the squares of M^3. */
static ir_value squarings(matrix_team *g, ir_value exponent, ir_value squares_of_cube) {
  ir *b = g->b;
  const int64_t bias = 100; /* keeps what is divided positive */
  ir_value q = emit_exponent(b, mul(b, squares_of_cube, ir_float(b, b->f32, 1 / (2 * pow(TEAM_REACH, 6)))));
  ir_value steps =
      ir_op2(b, "arith.divui", add(b, q, i32(b, 6 + 6 * bias)), i32(b, 6)); /* ceil((q + 1) / 6), and the bias */
  return within(b, add(b, exponent, sub(b, steps, i32(b, bias))), 0, MOST_SQUARINGS);
}

ir_value team_exponential_begin(matrix_team *g, ir_value *m) {
  ir *b = g->b;
  ir_value m2[TILE], m3[TILE];
  ir_wait(b, IR_BARRIER_BLOCK);
  team_read(g, TEAM_LEFT, m);
  /* ||M||^2 is at most half the sum of squares, which is below 2^(q+1). */
  ir_value q = emit_exponent(b, sum_of_squares(g, m));
  ir_value exponent = within(b, ir_op2(b, "arith.shrsi", add(b, q, i32(b, 1)), i32(b, 1)), 0, MOST_SQUARINGS);
  scale(b, m, emit_exp2_integer(b, sub(b, i32(b, 0), exponent), false));
  team_write(g, TEAM_LEFT, m);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_product(g, TEAM_LEFT, TEAM_LEFT, m2);
  for (int i = 0; i < TILE; i++) m2[i] = ir_op1(b, "arith.negf", m2[i]); /* M transposed is -M */
  team_write(g, TEAM_RIGHT, m2);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_product(g, TEAM_RIGHT, TEAM_LEFT, m3);
  ir_value count = squarings(g, exponent, sum_of_squares(g, m3));
  ir_value factor = emit_exp2_integer(b, sub(b, exponent, count), false), square_of = mul(b, factor, factor);
  scale(b, m, factor);
  scale(b, m2, square_of);
  scale(b, m3, mul(b, square_of, factor));
  team_write(g, TEAM_LEFT, m3);
  sum_series(g, m, m2, m3);
  return count;
}

/* The right matrix is D = exp(M / 2^count) - 1, which loses less in squaring than with the identity: (1 + D)^2 = 1 + 2
 * D + D^2. It is squared as often as any team needs; what is done stays as it is. The left one becomes the transpose
 * of 1 + D. */
void team_exponential_end(matrix_team *g, ir_value count, team_step *before, void *context) {
  ir *b = g->b;
  ir_value tile[TILE], own[TILE], most = largest(g, count);
  team_read(g, TEAM_RIGHT, own);
  team_write_transposed(g, TEAM_LEFT, own);
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_cast(b, "arith.extsi", most, b->i64));
  if (before) before(context, ir_compare_int(b, "slt", narrow(b, loop.index), count));
  team_product(g, TEAM_LEFT, TEAM_RIGHT, tile);
  team_read(g, TEAM_RIGHT, own);
  ir_value more = ir_compare_int(b, "slt", narrow(b, loop.index), count);
  for (int i = 0; i < TILE; i++) tile[i] = ir_select(b, more, add(b, add(b, own[i], own[i]), tile[i]), own[i]);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write(g, TEAM_RIGHT, tile);
  team_write_transposed(g, TEAM_LEFT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_end_for(b, loop);
  team_read(g, TEAM_RIGHT, own);
  for (int i = 0; i < TILE; i++) own[i] = team_plus_diagonal(g, i, own[i], ir_float(b, b->f32, 1));
  team_write_transposed(g, TEAM_LEFT, own); /* what the thread alone has written before */
  ir_wait(b, IR_BARRIER_BLOCK);
}

void team_exponential(matrix_team *g) {
  ir_value m[TILE];
  team_exponential_end(g, team_exponential_begin(g, m), NULL, NULL);
}
