/* gpu/exponential_adjoint: see gpu/exponential_adjoint.h. */
#include "gpu/exponential_adjoint.h"

#include "algebra/torque_dense.h"
#include "gpu/index.h"

#include <stdio.h>

enum { TILE = TEAM_TILE, MOST_NAME = 160 };

/* ---- tiles in memory ---- */

/* The thread's own element `of` a tile: places that differ by constants, which accesses add for nothing. */
static ir_value place(team_torque *t, int tile, int of) {
  ir *b = t->team->b;
  ir_value own = ir_offset(b, t->memory, wide(b, scaled(b, t->team->lane, 4)));
  return ir_offset_const(b, own, 4LL * t->team->threads * (TILE * tile + of));
}

static void keep(team_torque *t, int which, const ir_value *tile) {
  for (int i = 0; i < TILE; i++) ir_store(t->team->b, tile[i], place(t, which, i), 4, false);
}

static void fetch(team_torque *t, int which, ir_value *tile) {
  for (int i = 0; i < TILE; i++) tile[i] = ir_load(t->team->b, t->team->b->f32, place(t, which, i), 4);
}

void team_torque_store(team_torque *t, const ir_value *tile) { keep(t, TORQUE_TILE, tile); }

ir_value team_torque_element(team_torque *t, ir_value element) {
  ir *b = t->team->b;
  ir_value at = wide(b, scaled(b, element, 4LL * t->team->threads));
  return ir_load(b, b->f32, ir_offset(b, place(t, TORQUE_TILE, 0), at), 4);
}

/* ---- the torque ---- */

void team_torque_skew(team_torque *t) {
  matrix_team *g = t->team;
  ir *b = g->b;
  ir_value sums[TILE], transposed[TILE];
  fetch(t, TORQUE_TILE, sums);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write_transposed(g, TEAM_RIGHT, sums);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_read(g, TEAM_RIGHT, transposed);
  for (int i = 0; i < TILE; i++) sums[i] = sub(b, sums[i], transposed[i]);
  keep(t, TORQUE_TILE, sums);
  ir_wait(b, IR_BARRIER_BLOCK);
}

void team_torque_turn(team_torque *t, double factor) {
  matrix_team *g = t->team;
  ir *b = g->b;
  ir_value tile[TILE];
  team_read(g, TEAM_LEFT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write_transposed(g, TEAM_LEFT, tile);
  fetch(t, TORQUE_TILE, tile);
  team_write_transposed(g, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_product(g, TEAM_RIGHT, TEAM_LEFT, tile);
  for (int i = 0; i < TILE && factor != 1; i++) tile[i] = mul(b, tile[i], ir_float(b, b->f32, factor));
  keep(t, TORQUE_TILE, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
}

/* ---- the series ---- */

/* Coefficient of term k, and what a commutator is multiplied by to become the next one. */
static int series_table(const matrix_team *g, char *name) {
  double coefficient[TORQUE_MOST_TERMS], reach = 2 * TEAM_REACH; /* of ad M */
  float values[2 * TORQUE_MOST_TERMS];
  int count = torque_series(reach, false, coefficient);
  for (int k = 0; k < count; k++) {
    values[2 * k] = (float)coefficient[k];
    values[2 * k + 1] = (float)((k == 1 ? 1 : 2) / reach);
  }
  snprintf(name, MOST_NAME, "%s_series", g->name);
  ir_table(g->b, name, 2 * count, values, NULL);
  return count;
}

/* Chebyshev's recurrence: next = factor ad last + before. The left matrix is M, skew, complete; the right one is free,
 * here and after. */
static void sum_commutators(team_torque *t) {
  matrix_team *g = t->team;
  ir *b = g->b;
  char name[MOST_NAME];
  ir_value tile[TILE], transposed[TILE], last[TILE], before[TILE];
  int count = series_table(g, name);
  ir_value table = ir_table_address(b, name), first = ir_load(b, b->f32, table, 4);
  fetch(t, TORQUE_TILE, last);
  team_write(g, TEAM_RIGHT, last);
  for (int i = 0; i < TILE; i++) {
    before[i] = ir_float(b, b->f32, 0);
    last[i] = mul(b, first, last[i]);
  }
  keep(t, TORQUE_TILE, last); /* the sum, too, would be more than there are registers for */
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_loop loop = ir_for_with(b, i64(b, 1), i64(b, count), TILE, before, before);
  ir_value row = ir_offset(b, table, mul(b, loop.index, i64(b, 8)));
  ir_value coefficient = ir_load(b, b->f32, row, 4), factor = ir_load(b, b->f32, ir_offset_const(b, row, 4), 4);
  team_product(g, TEAM_LEFT, TEAM_RIGHT, tile); /* -M last */
  team_read(g, TEAM_RIGHT, last);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write_transposed(g, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_read(g, TEAM_RIGHT, transposed);
  for (int i = 0; i < TILE; i++) {
    tile[i] = ir_fma(b, factor, sub(b, transposed[i], tile[i]), before[i]);
  }
  team_write(g, TEAM_RIGHT, tile); /* what the thread alone has read since the barrier */
  for (int i = 0; i < TILE; i++) {
    ir_value at = place(t, TORQUE_TILE, i);
    ir_store(b, ir_fma(b, coefficient, tile[i], ir_load(b, b->f32, at, 4)), at, 4, false);
  }
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_end_for_with(b, loop, TILE, last, before);
}

/* ---- the squarings ---- */

/* 1/2 (tau + E tau E^T), E = 1 + D. The right matrix is kept meanwhile. */
static void halve(team_torque *t, ir_value more) {
  matrix_team *g = t->team;
  ir *b = g->b;
  ir_value tile[TILE], left[TILE], torque[TILE];
  team_read(g, TEAM_RIGHT, tile);
  keep(t, TORQUE_POWER, tile);
  fetch(t, TORQUE_TILE, torque);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write(g, TEAM_RIGHT, torque);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_product(g, TEAM_LEFT, TEAM_RIGHT, left); /* D tau */
  fetch(t, TORQUE_TILE, torque);
  for (int i = 0; i < TILE; i++) left[i] = add(b, left[i], torque[i]);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write_transposed(g, TEAM_RIGHT, left);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_product(g, TEAM_RIGHT, TEAM_LEFT, tile); /* E tau D^T */
  fetch(t, TORQUE_TILE, torque);
  for (int i = 0; i < TILE; i++) {
    ir_value sum = add(b, torque[i], add(b, tile[i], left[i]));
    torque[i] = ir_select(b, more, mul(b, sum, ir_float(b, b->f32, 0.5)), torque[i]);
  }
  keep(t, TORQUE_TILE, torque);
  fetch(t, TORQUE_POWER, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  team_write(g, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
}

static void halve_where_wanted(void *context, ir_value more) {
  team_torque *t = context;
  ir_branch branch = ir_if(t->team->b, t->wanted);
  halve(t, more);
  ir_end_if(t->team->b, branch);
}

void team_torque_exponential(team_torque *t) {
  matrix_team *g = t->team;
  ir *b = g->b;
  ir_value m[TILE], tile[TILE], count = team_exponential_begin(g, m);
  ir_branch branch = ir_if(b, t->wanted);
  team_read(g, TEAM_RIGHT, tile);
  keep(t, TORQUE_POWER, tile);
  team_write(g, TEAM_LEFT, m);
  ir_wait(b, IR_BARRIER_BLOCK);
  sum_commutators(t);
  fetch(t, TORQUE_POWER, tile);
  team_write(g, TEAM_RIGHT, tile);
  ir_wait(b, IR_BARRIER_BLOCK);
  ir_end_if(b, branch);
  team_exponential_end(g, count, halve_where_wanted, t);
}
