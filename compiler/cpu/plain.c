/* cpu/plain: see cpu/plain.h.
 *
 * For a norm a row is walked by the vectors of its tile, of which the last may begin among the channels of the one
 * before it: it is loaded before any is stored, and its lanes count once. Many vectors are a loop, and are loaded again
 * when they are multiplied; few stay in registers.
 */
#include "cpu/plain.h"

#include "cpu/product.h"
#include "mlir/arith.h"
#include "mlir/number.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { MOST_HELD = 8, MOST_STEP = 4, MOST_LANES = 64 };

typedef struct plain_emitter {
  ir *b;
  const plan_tile *t;
  const cpu_target *target;
  int dtype, out;
  ir_value rows; /* const pegen_plain_rows * */
  ir_value from, to; /* the row at hand */
  ir_value weights, factor; /* of norms; else null */
  ir_value gain; /* of rows that are converted */
} plain_emitter;

static ir_value field(plain_emitter *e, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, e->rows, (int64_t)offset), 8);
}

#define ROWS(e, name, type) field((e), offsetof(pegen_plain_rows, name), (e)->b->type)

/* Element start of the row at `base`, or so many elements behind that one. */
static ir_value element(plain_emitter *e, ir_value base, int start, ir_value behind, int bytes) {
  ir_value at = ir_offset_const(e->b, base, (int64_t)start * bytes);
  return behind.ptr ? ir_offset(e->b, at, mul(e->b, behind, i64(e->b, bytes))) : at;
}

static ir_value load(plain_emitter *e, int start, ir_value behind) {
  ir_value at = element(e, e->from, start, behind, number_bytes(e->dtype));
  return emit_load_channels(e->b, e->target->native, e->dtype, e->t->width, at);
}

static void store(plain_emitter *e, ir_value x, int start, ir_value behind) {
  ir *b = e->b;
  if (e->weights.ptr) {
    ir_value weights = ir_load(b, ir_type(x), element(e, e->weights, start, behind, 4), 4);
    x = emit_normalised(b, x, e->factor, weights);
  }
  if (e->out != e->dtype) x = mul(b, x, ir_broadcast(b, ir_type(x), e->gain));
  emit_store_channels(b, e->target->native, e->out, x, element(e, e->to, start, behind, number_bytes(e->out)), false);
}

/* Vectors that stay in registers, a fourth of these, and those that a turn of a loop has. */
static int held_of(const plain_emitter *e) {
  return e->target->registers / 4 < MOST_HELD ? e->target->registers / 4 : MOST_HELD;
}
static int step_of(const plain_emitter *e) { return held_of(e) / 2; }

/* Vectors that a loop walks; the others stand behind them. */
static int looped(const plain_emitter *e) {
  const plan_tile *t = e->t;
  int whole = t->n_vectors;
  if (t->n_vectors <= held_of(e)) return 0;
  while (t->start[whole - 1] != (whole - 1) * t->width) whole--;
  return whole / step_of(e) * step_of(e);
}

static ir_value squares(plain_emitter *e, ir_value x, ir_value sum) {
  return emit_multiply_add(e->b, e->target, x, x, sum);
}

/* Lanes that the vector before has, too, are 0. */
static ir_value counted_once(plain_emitter *e, ir_value x, int vector) {
  int before = vector * e->t->width - e->t->start[vector];
  bool mask[MOST_LANES];
  if (before == 0) return x;
  for (int i = 0; i < e->t->width; i++) mask[i] = i >= before;
  return ir_select(e->b, ir_bools(e->b, e->t->width, mask), x, ir_float(e->b, ir_type(x), 0));
}

/* The sum of the squares of a row; held: receives its vectors that no loop has. */
static ir_value sum_of_squares(plain_emitter *e, ir_value *held) {
  ir *b = e->b;
  const plan_tile *t = e->t;
  int first = looped(e), step = step_of(e), n_sums = t->n_vectors < step ? t->n_vectors : step;
  ir_value sums[MOST_STEP];
  for (int i = 0; i < n_sums; i++) sums[i] = ir_float(b, ir_vector(b, t->width, b->f32), 0);
  if (first) {
    ir_value now[MOST_STEP];
    ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, first / step), step, sums, now);
    ir_value behind = mul(b, loop.index, i64(b, (int64_t)step * t->width));
    for (int i = 0; i < step; i++) now[i] = squares(e, load(e, i * t->width, behind), now[i]);
    ir_end_for_with(b, loop, step, now, sums);
  }
  for (int j = first; j < t->n_vectors; j++) {
    held[j - first] = load(e, t->start[j], (ir_value){NULL});
    sums[j % n_sums] = squares(e, counted_once(e, held[j - first], j), sums[j % n_sums]);
  }
  for (int i = 1; i < n_sums; i++) sums[0] = add(b, sums[0], sums[i]);
  return emit_across(b, sums[0], add);
}

static int channels_of(const plan_tile *t) { return t->start[t->n_vectors - 1] + t->width; }

/* What a row is multiplied by: one over the root of the mean of its squares and epsilon. */
static ir_value factor_of_row(plain_emitter *e, ir_value epsilon, ir_value *held) {
  ir *b = e->b;
  ir_value mean = ir_op2(b, "arith.divf", sum_of_squares(e, held), ir_float(b, b->f32, channels_of(e->t)));
  return ir_op2(b, "arith.divf", ir_float(b, b->f32, 1), ir_op1(b, "math.sqrt", add(b, mean, epsilon)));
}

static void store_row(plain_emitter *e, const ir_value *held) {
  ir *b = e->b;
  const plan_tile *t = e->t;
  int first = looped(e), step = step_of(e);
  if (first) {
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, first / step));
    ir_value behind = mul(b, loop.index, i64(b, (int64_t)step * t->width));
    for (int i = 0; i < step; i++) store(e, load(e, i * t->width, behind), i * t->width, behind);
    ir_end_for(b, loop);
  }
  for (int j = first; j < t->n_vectors; j++) store(e, held[j - first], t->start[j], (ir_value){NULL});
}

/* ---- the functions ---- */

void emit_factors(ir *b, arena *a, const plan_tile *t, const cpu_target *target, int dtype) {
  plain_emitter e = {.b = b, .t = t, .target = target, .dtype = dtype, .out = dtype};
  ir_value given[7], held[MOST_HELD + MOST_STEP];
  ir_open(b, emit_factors_name(a, target, dtype), "piifpii", given);
  prefetch_ahead ahead = {given[5], given[6]};
  ir_loop loop = ir_for(b, i64(b, 0), given[2]);
  e.from = ir_offset(b, given[0], mul(b, loop.index, given[1]));
  emit_prefetch(b, ahead, e.from, channels_of(t) * number_bytes(dtype));
  ir_value factor = factor_of_row(&e, given[3], held);
  ir_store(b, factor, ir_offset(b, given[4], mul(b, loop.index, i64(b, 4))), 4, false);
  ir_end_for(b, loop);
  ir_return(b);
}

void emit_find_factors(ir *b, arena *a, const cpu_target *target, int dtype, const factor_rows *rows) {
  ir_value arguments[] = {rows->first,   rows->step,          rows->count,       rows->epsilon,
                          rows->factors, rows->ahead.nearest, rows->ahead.second};
  ir_call(b, emit_factors_name(a, target, dtype), 7, arguments);
}

static ir_loop begin_rows(plain_emitter *e, const char *name) {
  ir *b = e->b;
  ir_open(b, name, "p", &e->rows);
  ir_value in = ROWS(e, in, ptr), out = ROWS(e, out, ptr), in_step = ROWS(e, in_step, i64),
           out_step = ROWS(e, out_step, i64);
  if (e->out != e->dtype) e->gain = ir_cast(b, "arith.truncf", ROWS(e, gain, f64), b->f32);
  ir_loop loop = ir_for(b, i64(b, 0), ROWS(e, rows, i64));
  e->from = ir_offset(b, in, mul(b, loop.index, in_step));
  e->to = ir_offset(b, out, mul(b, loop.index, out_step));
  return loop;
}

static void normalise_row(plain_emitter *e) {
  ir_value held[MOST_HELD + MOST_STEP];
  e->weights = ROWS(e, norm, ptr);
  e->factor = factor_of_row(e, ir_cast(e->b, "arith.truncf", ROWS(e, epsilon, f64), e->b->f32), held);
  store_row(e, held);
  e->weights = e->factor = (ir_value){NULL};
}

static void convert_row(plain_emitter *e) {
  ir_value held[MOST_HELD + MOST_STEP];
  for (int j = looped(e); j < e->t->n_vectors; j++) held[j - looped(e)] = load(e, e->t->start[j], (ir_value){NULL});
  store_row(e, held);
}

void emit_norm(ir *b, arena *a, const plan_tile *t, const cpu_target *target, int dtype) {
  plain_emitter e = {.b = b, .t = t, .target = target, .dtype = dtype, .out = dtype};
  ir_loop rows = begin_rows(&e, emit_norm_name(a, target, dtype));
  normalise_row(&e);
  ir_end_for(b, rows);
  ir_return(b);
}

void emit_convert(ir *b, arena *a, const plan_tile *t, const cpu_target *target, int dtype, int out, bool normalises) {
  plain_emitter e = {.b = b, .t = t, .target = target, .dtype = dtype, .out = out};
  ir_loop rows = begin_rows(&e, emit_convert_name(a, target, dtype, out));
  ir_branch branch;
  if (normalises) {
    branch = ir_if(b, ir_compare_int(b, "ne", ROWS(&e, norm, i64), i64(b, 0)));
    normalise_row(&e);
    ir_else(b, &branch);
  }
  convert_row(&e);
  if (normalises) ir_end_if(b, branch);
  ir_end_for(b, rows);
  ir_return(b);
}
