/* gpu/warp_exponential: see gpu/warp_exponential.h. */
#include "gpu/warp_exponential.h"

#include "gpu/body.h"
#include "gpu/index.h"

enum { NUMBER = TWO_FLOAT_BYTES, WARP = WARP_LANES, MOST_SIZE = WARP_MOST_SIZE };

/* What TERMS of the series leave out is below 2^-50 of M / 2^s. 2^40 is more than the largest sum of angles that means
 * anything. */
enum { TERMS = 13, MOST_SQUARINGS = 40 };

static ir_value least(ir *b, ir_value x, int64_t most) {
  return ir_select(b, ir_compare_int(b, "slt", x, i32(b, most)), x, i32(b, most));
}
static ir_value greater(ir *b, const char *compare, ir_value x, ir_value y) {
  return ir_select(b, ir_compare_float(b, compare, x, y), x, y);
}

/* ---- shared memory: norms, the matrices, other uses ---- */

int warp_lane_bytes(int size) { return (size | 1) * NUMBER; }

static int64_t begin_of(int size, int matrix) { return WARP * (4LL + (int64_t)matrix * warp_lane_bytes(size)); }

int64_t warp_scratch_bytes(int size, int64_t more) { return begin_of(size, WARP_POWER + 1) + more; }

static const char *shared_name(const warp_exponential *e) { return arena_printf(e->memory, "%s_scratch", e->name); }

static ir_value scratch(warp_exponential *e, int64_t base, ir_value at) {
  ir *b = e->b;
  ir_value memory = ir_shared_address(b, shared_name(e));
  return ir_offset(b, memory,
                   wide(b, add(b, add(b, scaled(b, e->warp, warp_scratch_bytes(e->size, e->more)), i32(b, base)), at)));
}

ir_value warp_more(warp_exponential *e, ir_value at) { return scratch(e, begin_of(e->size, WARP_POWER + 1), at); }

ir_value warp_row(warp_exponential *e, int matrix, ir_value lane) {
  return scratch(e, begin_of(e->size, matrix), scaled(e->b, lane, warp_lane_bytes(e->size)));
}

ir_value warp_row_of_block(warp_exponential *e, int matrix, int k) {
  ir *b = e->b;
  return warp_row(e, matrix, add(b, scaled(b, e->team, e->size), i32(b, k)));
}

two_float warp_entry(warp_exponential *e, ir_value row, int column) {
  return two_float_load(e->b, ir_offset_const(e->b, row, (int64_t)column * NUMBER));
}

static void store_entry(warp_exponential *e, ir_value row, int column, two_float x) {
  two_float_store(e->b, x, ir_offset_const(e->b, row, (int64_t)column * NUMBER));
}

/* ---- blocks and lanes ---- */

warp_exponential warp_exponential_of(arena *a, const program *p) {
  warp_exponential e = {.memory = a, .apply = program_encoded_apply(p)};
  e.matrix = p->value[e.apply->argument[0]].maker;
  e.angles = p->value[e.matrix->argument[0]].maker;
  e.blocks = &e.matrix->blocks;
  e.size = e.blocks->size;
  e.teams = WARP / e.size;
  e.slots = (e.blocks->count + e.teams - 1) / e.teams;
  e.generator = arena_array(a, const expr *, e.matrix->skew.count);
  gpu_generators(p, &e.matrix->skew, e.generator);
  return e;
}

void warp_open(warp_exponential *e, int warps, ir_value thread) {
  ir *b = e->b;
  ir_shared(b, shared_name(e), warps * warp_scratch_bytes(e->size, e->more));
  e->warp = ir_op2(b, "arith.divui", thread, i32(b, WARP));
  e->lane = ir_op2(b, "arith.remui", thread, i32(b, WARP));
  e->team = least(b, ir_op2(b, "arith.divui", e->lane, i32(b, e->size)), e->teams - 1);
  e->row = ir_op2(b, "arith.remui", e->lane, i32(b, e->size));
}

ir_value warp_block(warp_exponential *e, ir_value slot) {
  ir *b = e->b;
  return least(b, add(b, scaled(b, slot, e->teams), e->team), e->blocks->count - 1);
}

static ir_value norm_at(warp_exponential *e, ir_value lane) { return scratch(e, 0, scaled(e->b, lane, 4)); }

ir_value warp_sum(warp_exponential *e, ir_value own) {
  ir *b = e->b;
  ir_value sum = {NULL}, first = scaled(b, e->team, e->size);
  ir_store(b, own, norm_at(e, e->lane), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
  for (int k = 0; k < e->size; k++) {
    ir_value x = ir_load(b, b->f32, norm_at(e, add(b, first, i32(b, k))), 4);
    sum = k ? add(b, sum, x) : x;
  }
  ir_wait(b, IR_BARRIER_WARP);
  return sum;
}

/* ---- forming ---- */

static two_float whole(warp_exponential *e, two_float x) {
  return x.lo.ptr ? two_float_add(e->b, two_float_f32(x.hi), two_float_f32(x.lo)) : x;
}

/* Adds angle times what the raw matrix gives to row `row` of the generator: its own row, or less its column. One after
 * the other, because both together are more registers than a thread has to spare. */
static void add_side(warp_exponential *e, int which, int side, ir_value first, two_float angle, bool is_first,
                     two_float *sum) {
  ir *b = e->b;
  const spec_skew *g = &e->matrix->skew.of[which];
  int n = e->size;
  ir_value offset[MOST_SIZE];
  two_float raw[MOST_SIZE], zero = two_float_f32(ir_float(b, b->f32, 0));
  for (int j = 0; j < n; j++)
    offset[j] = side ? add(b, first, add(b, e->row, i32(b, (int64_t)j * n)))
                     : add(b, first, add(b, scaled(b, e->row, n), i32(b, j)));
  emit_thread_elements(e->exprs, g->operand, n, offset, raw);
  for (int j = 0; j < n; j++) {
    const char *counts = g->rule == SKEW_DIFFERENCE ? "ne" : side ? "sgt" : "slt";
    two_float value = two_float_select(b, ir_compare_int(b, counts, e->row, i32(b, j)), raw[j], zero);
    value = (side != 0) != e->apply->transposed ? two_float_neg(b, value) : value;
    if (angle.hi.ptr) value = two_float_mul(b, angle, value);
    sum[j] = is_first ? value : two_float_add(b, sum[j], value);
  }
}

void warp_add_generator(warp_exponential *e, int which, ir_value begin, two_float factor, bool first, two_float *sum) {
  for (int side = 0; side < 2; side++) add_side(e, which, side, begin, factor, first && !side, sum);
}

/* Row `row` of the block's sum of angle times generator, turned round where it is applied transposed. */
static void sum_generators(warp_exponential *e, two_float *sum) {
  for (int i = 0; i < e->matrix->skew.count; i++) {
    ir_value begin = emit_thread_offset(e->exprs, e->generator[i], 0);
    two_float angle = emit_thread_value(e->exprs, e->angles->expr[i], 0);
    warp_add_generator(e, i, begin, angle, i == 0, sum);
  }
}

/* Squarings that bring a norm below 1/2: its exponent and two more, none for what is small. */
static ir_value squarings(warp_exponential *e, ir_value norm) {
  ir *b = e->b;
  ir_value exponent = ir_op2(b, "arith.shrui", ir_cast(b, "arith.bitcast", norm, b->i32), i32(b, 23));
  ir_value count = sub(b, exponent, i32(b, 127 - 2));
  return least(b, ir_select(b, ir_compare_int(b, "slt", count, i32(b, 0)), i32(b, 0), count), MOST_SQUARINGS);
}

/* The largest sum of a row's magnitudes in the lane's own block, and of all in the warp. */
static void share_norms(warp_exponential *e, const two_float *sum, ir_value *own, ir_value *all) {
  ir *b = e->b;
  ir_value norm = ir_op1(b, "math.absf", sum[0].hi);
  for (int j = 1; j < e->size; j++) norm = add(b, norm, ir_op1(b, "math.absf", sum[j].hi));
  ir_store(b, norm, norm_at(e, e->lane), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
  *own = *all = norm;
  ir_value first = scaled(b, e->team, e->size);
  for (int j = 0; j < e->size; j++)
    *own = greater(b, "ogt", ir_load(b, b->f32, norm_at(e, add(b, first, i32(b, j))), 4), *own);
  for (int lane = 0; lane < e->teams * e->size; lane++)
    *all = greater(b, "ogt", ir_load(b, b->f32, norm_at(e, i32(b, lane)), 4), *all);
}

/* row [size] times the block's matrix in `array`: what every lane of the block has put there. */
static void times(warp_exponential *e, const two_float *row, int array, two_float *product) {
  ir *b = e->b;
  ir_value first = scaled(b, e->team, e->size);
  for (int k = 0; k < e->size; k++) {
    ir_value other = warp_row(e, array, add(b, first, i32(b, k)));
    for (int j = 0; j < e->size; j++) {
      two_float term = two_float_mul_loosely(b, row[k], warp_entry(e, other, j));
      product[j] = k ? two_float_add_loosely(b, product[j], term) : term;
    }
  }
  for (int j = 0; j < e->size; j++) product[j] = whole(e, product[j]);
}

static void load_row(warp_exponential *e, ir_value own, two_float *row) {
  for (int j = 0; j < e->size; j++) row[j] = warp_entry(e, own, j);
}

static void store_row(warp_exponential *e, ir_value own, const two_float *row) {
  for (int j = 0; j < e->size; j++) store_entry(e, own, j, row[j]);
}

/* exp(M / 2^s), row by row: r <- e_i + r M / k from the last term to the first. A lane touches its own row alone. */
static void sum_series(warp_exponential *e, ir_value own) {
  ir *b = e->b;
  two_float row[MOST_SIZE], product[MOST_SIZE];
  float inverse[2 * TERMS];
  for (int k = 0; k < TERMS; k++) two_float_split(1.0 / (TERMS - k), &inverse[2 * k], &inverse[2 * k + 1]);
  const char *table = arena_printf(e->memory, "%s_terms", e->name);
  ir_table(b, table, 2 * TERMS, inverse, NULL);
  two_float one = two_float_const(b, 1), none = {.hi = ir_float(b, b->f32, 0), .lo = {NULL}};
  for (int j = 0; j < e->size; j++) row[j] = two_float_select(b, ir_compare_int(b, "eq", e->row, i32(b, j)), one, none);
  store_row(e, own, row);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, TERMS));
  ir_value term = narrow(b, loop.index);
  two_float factor =
      two_float_load(b, ir_offset(b, ir_table_address(b, table), wide(b, scaled(b, term, TWO_FLOAT_BYTES))));
  load_row(e, own, row);
  times(e, row, WARP_GENERATOR, product);
  for (int j = 0; j < e->size; j++) {
    two_float unit = two_float_select(b, ir_compare_int(b, "eq", e->row, i32(b, j)), one, none);
    product[j] = two_float_add(b, unit, two_float_mul(b, product[j], factor));
  }
  store_row(e, own, product);
  ir_end_for(b, loop);
}

warp_squarings warp_exponential_begin(warp_exponential *e) {
  ir *b = e->b;
  two_float sum[MOST_SIZE], row[MOST_SIZE];
  ir_value own_norm, all_norm;
  sum_generators(e, sum);
  share_norms(e, sum, &own_norm, &all_norm);
  warp_squarings s = {.count = squarings(e, own_norm)};
  s.most = squarings(e, all_norm);
  ir_value bits = ir_op2(b, "arith.shli", sub(b, i32(b, 127), s.count), i32(b, 23)),
           factor = ir_cast(b, "arith.bitcast", bits, b->f32);
  for (int j = 0; j < e->size; j++) {
    row[j].hi = mul(b, sum[j].hi, factor);
    row[j].lo = sum[j].lo.ptr ? mul(b, sum[j].lo, factor) : ir_float(b, b->f32, 0);
  }
  store_row(e, warp_row(e, WARP_GENERATOR, e->lane), row);
  ir_wait(b, IR_BARRIER_WARP);
  sum_series(e, warp_row(e, WARP_POWER, e->lane));
  return s;
}

/* Squares as often as any block of the warp needs; a block that is done keeps its matrix. */
void warp_exponential_end(warp_exponential *e, const warp_squarings *s, warp_step *before, void *context) {
  ir *b = e->b;
  two_float row[MOST_SIZE], product[MOST_SIZE];
  ir_value own = warp_row(e, WARP_POWER, e->lane);
  ir_wait(b, IR_BARRIER_WARP);
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_cast(b, "arith.extsi", s->most, b->i64));
  ir_value more = ir_compare_int(b, "slt", ir_cast(b, "arith.trunci", loop.index, b->i32), s->count);
  if (before) before(context, more);
  load_row(e, own, row);
  times(e, row, WARP_POWER, product);
  for (int j = 0; j < e->size; j++) product[j] = two_float_select(b, more, product[j], row[j]);
  ir_wait(b, IR_BARRIER_WARP); /* all have read */
  store_row(e, own, product);
  ir_wait(b, IR_BARRIER_WARP); /* all have written */
  ir_end_for(b, loop);
}
