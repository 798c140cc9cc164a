/* gpu/dense_gradient: gradients of operands and positions of exponentials in float64, on GPUs.
 *
 * A warp has a chunk of items (and one head, where heads differ), and its lanes blocks as in gpu/warp_exponential, some
 * at a time. The matrix is formed in two-float arithmetic, each power on the way is good to float32 whatever the angle
 * is, and so is the torque that goes along, of which lane i has row i:
 *
 *     tau <- a series in ad of M / 2^count, then 1/2 (tau + E tau E^T) ahead of every squaring of E
 *
 * (gpu/exponential_adjoint.h, whose signs these are). In all else it is gpu/matrix_gradient's entry.
 */

#include "algebra/torque_dense.h"
#include "base/number.h"
#include "gpu/exponential.h"
#include "gpu/gains.h"
#include "gpu/index.h"
#include "gpu/matrix_gradient.h"
#include "gpu/schedule.h"
#include "gpu/warp_exponential.h"
#include "mlir/number.h"

#include "kernel/launch.h"

enum { WARP = WARP_LANES, WARPS = PEGEN_PTX_BLOCK / WARP, MOST = WARP_MOST_SIZE, NUMBER = TWO_FLOAT_BYTES };

typedef struct dense_gradient {
  ir *b;
  arena *memory;
  gpu_body *body;
  warp_exponential x;
  gpu_gains gains;
  row_thread kept;      /* rows that encode wrote or read */
  ir_value is_own;      /* i1: the lane has a row of a block that no other has */
  ir_value valid;       /* i1: the item's token is encoded */
  ir_value wanted;      /* i1: the exponential takes the torque along */
  two_float gained[SPEC_MAX_AXES];
} dense_gradient;

static int size_of(const dense_gradient *g) { return g->x.size; }
static int count_of(const dense_gradient *g) { return g->x.matrix->skew.count; }

/* ---- the torque, in shared memory: a row a lane ---- */

static int64_t torque_bytes(int size) { return 4LL * WARP * (size | 1); }

static ir_value torque_row(dense_gradient *g, ir_value lane) {
  return warp_more(&g->x, scaled(g->b, lane, 4LL * (size_of(g) | 1)));
}

static ir_value torque_row_of_block(dense_gradient *g, int k) {
  ir *b = g->b;
  return torque_row(g, add(b, scaled(b, g->x.team, size_of(g)), i32(b, k)));
}

static ir_value tau_entry(dense_gradient *g, ir_value row, int column) {
  return ir_load(g->b, g->b->f32, ir_offset_const(g->b, row, 4LL * column), 4);
}

static void load_torque(dense_gradient *g, ir_value *row) {
  ir_value own = torque_row(g, g->x.lane);
  for (int j = 0; j < size_of(g); j++) row[j] = tau_entry(g, own, j);
}

/* Once all lanes have read what was there; complete. */
static void store_torque(dense_gradient *g, const ir_value *row) {
  ir *b = g->b;
  ir_wait(b, IR_BARRIER_WARP);
  ir_value own = torque_row(g, g->x.lane);
  for (int j = 0; j < size_of(g); j++) ir_store(b, row[j], ir_offset_const(b, own, 4LL * j), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
}

/* An entry of a matrix as float32: of a pair that is the larger number. */
static ir_value entry_of(dense_gradient *g, ir_value row, int column) {
  return ir_load(g->b, g->b->f32, ir_offset_const(g->b, row, (int64_t)column * NUMBER), 4);
}

/* sum + x y; sum null: 0. */
static ir_value plus_product(ir *b, ir_value sum, ir_value x, ir_value y) {
  return sum.ptr ? ir_fma(b, x, y, sum) : mul(b, x, y);
}

static void load_matrix_row(dense_gradient *g, int matrix, ir_value *row) {
  ir_value own = warp_row(&g->x, matrix, g->x.lane);
  for (int j = 0; j < size_of(g); j++) row[j] = entry_of(g, own, j);
}

/* A matrix of the lane's block, a row a lane: where the lane's own is, and the first; bytes. */
typedef struct lane_rows {
  ir_value own, first;
  int lane_bytes, number_bytes;
} lane_rows;

static lane_rows rows_of_torque(dense_gradient *g) {
  lane_rows rows = {.own = torque_row(g, g->x.lane), .lane_bytes = 4 * (size_of(g) | 1), .number_bytes = 4};
  rows.first = torque_row_of_block(g, 0);
  return rows;
}

static lane_rows rows_of_matrix(dense_gradient *g, int matrix) {
  lane_rows rows = {
      .own = warp_row(&g->x, matrix, g->x.lane), .lane_bytes = warp_lane_bytes(size_of(g)), .number_bytes = NUMBER};
  rows.first = warp_row_of_block(&g->x, matrix, 0);
  return rows;
}

/* The lane's row of a product; a loop, for unrolled it would have more numbers under way than there are registers. */
static void multiply(dense_gradient *g, const lane_rows *left, const lane_rows *right, ir_value *product) {
  ir *b = g->b;
  int n = size_of(g);
  for (int j = 0; j < n; j++) product[j] = ir_float(b, b->f32, 0);
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, n), n, product, product);
  ir_value x = ir_load(b, b->f32, ir_offset(b, left->own, mul(b, loop.index, i64(b, left->number_bytes))), 4),
           row = ir_offset(b, right->first, mul(b, loop.index, i64(b, right->lane_bytes)));
  for (int j = 0; j < n; j++) {
    ir_value y = ir_load(b, b->f32, ir_offset_const(b, row, (int64_t)j * right->number_bytes), 4);
    product[j] = ir_fma(b, x, y, product[j]);
  }
  ir_end_for_with(b, loop, n, product, product);
}

/* The sums of g_i y_j less their transposes. */
static void skew_torque(dense_gradient *g) {
  ir *b = g->b;
  ir_value row[MOST];
  load_torque(g, row);
  for (int j = 0; j < size_of(g); j++) {
    ir_value at = ir_offset(b, torque_row_of_block(g, j), wide(b, scaled(b, g->x.row, 4)));
    row[j] = sub(b, row[j], ir_load(b, b->f32, at, 4));
  }
  store_torque(g, row);
}

/* The sums of g_i x_j of y = factor exp(-M) x become those of g_i y_j. */
static void turn_torque(dense_gradient *g) {
  ir *b = g->b;
  double factor = g->x.matrix->skew.factor;
  ir_value turned[MOST];
  lane_rows torque = rows_of_torque(g), power = rows_of_matrix(g, WARP_POWER);
  multiply(g, &torque, &power, turned);
  for (int j = 0; j < size_of(g) && factor != 1; j++) turned[j] = mul(b, turned[j], ir_float(b, b->f32, factor));
  store_torque(g, turned);
}

/* ---- through the exponential ---- */

/* Coefficient of term k, and what a commutator is multiplied by to become the next one. */
static const char *series_table(dense_gradient *g, int *count) {
  double coefficient[TORQUE_MOST_TERMS], reach = 2 * WARP_REACH; /* of ad M */
  float values[2 * TORQUE_MOST_TERMS];
  const char *name = arena_printf(g->memory, "%s_series", g->x.name);
  *count = torque_series(reach, false, coefficient);
  for (int k = 0; k < *count; k++) {
    values[2 * k] = (float)coefficient[k];
    values[2 * k + 1] = (float)((k == 1 ? 1 : 2) / reach);
  }
  ir_table(g->b, name, 2 * *count, values, NULL);
  return name;
}

/* [M, torque], the lane's row. */
static void commutator(dense_gradient *g, ir_value *out) {
  ir_value right[MOST];
  lane_rows torque = rows_of_torque(g), m = rows_of_matrix(g, WARP_GENERATOR);
  multiply(g, &m, &torque, out);
  multiply(g, &torque, &m, right);
  for (int j = 0; j < size_of(g); j++) out[j] = sub(g->b, out[j], right[j]);
}

/* Chebyshev's recurrence: next = factor ad last + before. */
static void sum_commutators(dense_gradient *g) {
  ir *b = g->b;
  int n = size_of(g), count;
  ir_value carried[2 * MOST], last[MOST], next[MOST];
  ir_value table = ir_table_address(b, series_table(g, &count)), first = ir_load(b, b->f32, table, 4);
  load_torque(g, last);
  for (int j = 0; j < n; j++) {
    carried[j] = ir_float(b, b->f32, 0);    /* the term before */
    carried[n + j] = mul(b, first, last[j]); /* the sum */
  }
  ir_loop loop = ir_for_with(b, i64(b, 1), i64(b, count), 2 * n, carried, carried);
  ir_value at = ir_offset(b, table, mul(b, loop.index, i64(b, 8))), coefficient = ir_load(b, b->f32, at, 4),
           factor = ir_load(b, b->f32, ir_offset_const(b, at, 4), 4);
  commutator(g, next);
  load_torque(g, last);
  for (int j = 0; j < n; j++) {
    next[j] = ir_fma(b, factor, next[j], carried[j]);
    carried[j] = last[j];
    carried[n + j] = ir_fma(b, coefficient, next[j], carried[n + j]);
  }
  store_torque(g, next);
  ir_end_for_with(b, loop, 2 * n, carried, carried);
  store_torque(g, carried + n);
}

/* 1/2 (tau + E tau E^T). */
static void halve(dense_gradient *g, ir_value more) {
  ir *b = g->b;
  int n = size_of(g);
  ir_value own[MOST], left[MOST], half = ir_float(b, b->f32, 0.5);
  lane_rows torque = rows_of_torque(g), power = rows_of_matrix(g, WARP_POWER);
  multiply(g, &power, &torque, left);
  load_torque(g, own);
  for (int k = 0; k < n; k++) {
    ir_value row = warp_row_of_block(&g->x, WARP_POWER, k), sum = own[k];
    for (int j = 0; j < n; j++) sum = ir_fma(b, left[j], entry_of(g, row, j), sum);
    own[k] = ir_select(b, more, mul(b, half, sum), own[k]);
  }
  store_torque(g, own);
}

static void halve_where_wanted(void *context, ir_value more) {
  dense_gradient *g = context;
  ir_branch branch = ir_if(g->b, g->wanted);
  halve(g, more);
  ir_end_if(g->b, branch);
}

static void form_matrix(dense_gradient *g) {
  ir *b = g->b;
  ir_branch torque = ir_if(b, g->wanted);
  skew_torque(g);
  ir_end_if(b, torque);
  warp_squarings squarings = warp_exponential_begin(&g->x);
  torque = ir_if(b, g->wanted);
  sum_commutators(g);
  ir_end_if(b, torque);
  warp_exponential_end(&g->x, &squarings, halve_where_wanted, g);
}

/* ---- rows ---- */

/* Bytes into a row of component j of the lane's block, i64. */
static ir_value channel_at(dense_gradient *g, int j) {
  const int *channel = g->x.blocks->channel + (int64_t)j * g->x.blocks->count;
  return wide(g->b, scaled(g->b, emit_thread_index(&g->body->exprs, channel), g->body->entry->tile->element));
}

/* The lane's own. */
static ir_value own_channel_at(dense_gradient *g) {
  ir *b = g->b;
  ir_value at = channel_at(g, 0);
  for (int j = 1; j < size_of(g); j++) {
    ir_value here = ir_compare_int(b, "eq", g->x.row, i32(b, j));
    at = ir_select(b, here, channel_at(g, j), at);
  }
  return at;
}

/* A number of a row, as it is stored and as float32. */
static ir_value load_number(dense_gradient *g, ir_value at, ir_value *bits) {
  row_thread reader = g->body->rows;
  ir_value x, raw[1];
  row_place place = {.in = at, .raw = raw};
  emit_row_load(&reader, &place);
  emit_row_unpack(&reader, &place, &x);
  if (bits) *bits = raw[0];
  return x;
}

static void load_block(dense_gradient *g, ir_value row, ir_value *x) {
  for (int j = 0; j < size_of(g); j++) x[j] = load_number(g, ir_offset(g->b, row, channel_at(g, j)), NULL);
}

static row_origin origin_of(dense_gradient *g, row_thread *rows) {
  return emit_row_origin(rows, &g->body->owner, i64(g->b, 0));
}

static ir_loop each_row(dense_gradient *g) {
  ir *b = g->b;
  return ir_for(b, wide(b, g->body->begin), wide(b, g->body->end));
}

/* The lane's row of the sums over rows of g_i y_j. */
static void sum_rows(dense_gradient *g) {
  ir *b = g->b;
  int n = size_of(g);
  two_float sums[MOST];
  ir_value y[MOST];
  for (int i = 0; i < n; i++) sums[i] = two_float_const(b, 0);
  row_origin rows = origin_of(g, &g->body->rows), of_kept = origin_of(g, &g->kept);
  ir_loop loop = two_float_for(b, wide(b, g->body->begin), wide(b, g->body->end), n, sums);
  ir_value row = narrow(b, loop.index);
  row_place place = emit_row_place(&g->body->rows, &rows, row), kept = emit_row_place(&g->kept, &of_kept, row);
  ir_value own = load_number(g, ir_offset(b, place.in, own_channel_at(g)), NULL);
  load_block(g, kept.in, y);
  for (int j = 0; j < n; j++) sums[j] = two_float_add(b, sums[j], two_float_f32(mul(b, own, y[j])));
  two_float_end_for(b, loop, n, sums);
  for (int j = 0; j < n; j++) y[j] = add(b, sums[j].hi, sums[j].lo);
  store_torque(g, y);
}

/* Gradients of rows are turned back, lane by lane a channel of each. */
static void turn_rows(dense_gradient *g) {
  ir *b = g->b;
  double factor = g->x.matrix->skew.factor;
  ir_value x[MOST], c[MOST], sum = {NULL}, bits;
  load_matrix_row(g, WARP_POWER, c);
  for (int j = 0; j < size_of(g) && factor != 1; j++) c[j] = mul(b, c[j], ir_float(b, b->f32, factor));
  row_origin rows = origin_of(g, &g->body->rows);
  ir_loop loop = each_row(g);
  ir_value row = narrow(b, loop.index), at = own_channel_at(g);
  row_place place = emit_row_place(&g->body->rows, &rows, row);
  load_block(g, place.in, x);
  for (int j = 0; j < size_of(g); j++) sum = plus_product(b, sum, c[j], x[j]);
  load_number(g, ir_offset(b, place.in, at), &bits);
  bits = ir_select(b, g->valid, emit_row_number(&g->body->rows, sum), bits);
  ir_wait(b, IR_BARRIER_WARP); /* all have read */
  ir_branch stored = ir_if(b, both(b, g->is_own, gpu_is_written(g->body, row)));
  ir_store(b, bits, ir_offset(b, place.out, at), g->body->entry->tile->element, false);
  ir_end_if(b, stored);
  ir_end_for(b, loop);
}

static void pass_channels(dense_gradient *g, int count, const char *table) {
  ir *b = g->b;
  int element = g->body->entry->tile->element;
  MlirType type = number_bits(b, g->body->rows.dtype);
  if (count == 0) return;
  row_origin rows = origin_of(g, &g->body->rows);
  ir_loop loop = each_row(g);
  ir_value row = narrow(b, loop.index);
  row_place place = emit_row_place(&g->body->rows, &rows, row);
  ir_branch written = ir_if(b, gpu_is_written(g->body, row));
  ir_loop lanes = ir_for(b, i64(b, 0), i64(b, (count + WARP - 1) / WARP));
  ir_value index = add(b, g->x.lane, scaled(b, narrow(b, lanes.index), WARP));
  ir_branch inside = ir_if(b, below(b, index, i32(b, count)));
  ir_value channel = table_i32(b, table, index), at = wide(b, scaled(b, channel, element));
  ir_value x = ir_load(b, type, ir_offset(b, place.in, at), element);
  ir_store(b, x, ir_offset(b, place.out, at), element, false);
  ir_end_if(b, inside);
  ir_end_for(b, lanes);
  ir_end_if(b, written);
  ir_end_for(b, loop);
}

/* ---- what matrices and angles gain ---- */

/* Clears the sums of all blocks' matrices, which lie side by side. */
static void clear_matrices(dense_gradient *g) {
  ir *b = g->b;
  int64_t count = (int64_t)g->x.blocks->count * team_padded(size_of(g)) * team_padded(size_of(g));
  ir_branch wanted = gpu_if_matrices_wanted(&g->gains, ir_int(b, b->i1, 1));
  for (int k = 0; k < count_of(g); k++) {
    ir_value begin = gpu_matrix_sums(&g->gains, g->x.matrix, k, i32(b, 0));
    ir_loop loop = ir_for(b, i64(b, 0), i64(b, count / WARP)); /* 16 x 16 numbers each */
    ir_value at = add(b, mul(b, loop.index, i64(b, WARP)), wide(b, g->x.lane));
    two_float_store(b, two_float_const(b, 0), ir_offset(b, begin, mul(b, at, i64(b, NUMBER))));
    ir_end_for(b, loop);
  }
  ir_end_if(b, wanted);
  ir_wait(b, IR_BARRIER_WARP);
}

static void add_matrix(dense_gradient *g, int k, two_float angle, const ir_value *torque) {
  ir *b = g->b;
  int64_t pitch = (int64_t)team_padded(size_of(g)) * NUMBER;
  ir_branch wanted = gpu_if_matrices_wanted(&g->gains, both(b, g->valid, g->is_own));
  ir_value row = ir_offset(b, gpu_matrix_sums(&g->gains, g->x.matrix, k, g->body->exprs.unit),
                           wide(b, scaled(b, g->x.row, pitch)));
  for (int j = 0; j < size_of(g); j++) {
    ir_value at = ir_offset_const(b, row, (int64_t)j * NUMBER);
    two_float more = two_float_mul(b, angle, two_float_f32(torque[j]));
    two_float_store(b, two_float_add(b, two_float_load(b, at), more), at);
  }
  ir_end_if(b, wanted);
}

/* Adds the gradients of angles and matrices. The generators at hand are those of -A, since rows are turned back by
 * exp(-A): hence the sign of the angles' gradients, which are half of the products over all entries. */
static void add_gains(dense_gradient *g) {
  ir *b = g->b;
  ir_value torque[MOST];
  two_float entry[MOST], as_it_is = {.hi = {NULL}, .lo = {NULL}};
  load_torque(g, torque);
  for (int k = 0; k < count_of(g); k++) {
    two_float angle = emit_thread_value(&g->body->exprs, g->x.angles->expr[k], 0);
    ir_value sum = {NULL};
    warp_add_generator(&g->x, k, emit_thread_offset(&g->body->exprs, g->x.generator[k], 0), as_it_is, true, entry);
    for (int j = 0; j < size_of(g); j++) sum = plus_product(b, sum, two_float_narrow(b, entry[j]), torque[j]);
    g->gained[k] = two_float_f32(mul(b, warp_sum(&g->x, sum), ir_float(b, b->f32, -0.5)));
    add_matrix(g, k, angle, torque);
  }
  ir_value stores = both(b, g->valid, ir_compare_int(b, "eq", g->x.row, i32(b, 0)));
  g->gains.stores = both(b, g->is_own, stores);
  if (g->gains.of) gpu_add_gains(&g->gains);
}

/* ---- items ---- */

/* The lane's block of the slot, and whether it is its own. */
static void set_block(dense_gradient *g, ir_value slot) {
  ir *b = g->b;
  int n = size_of(g), count = 0, most = SPEC_MAX_AXES * 2 + (g->gains.of ? g->gains.of->n_boundaries : 0);
  const expr **roots = arena_array(g->memory, const expr *, most);
  g->body->exprs.unit = warp_block(&g->x, slot);
  ir_value place = add(b, scaled(b, slot, g->x.teams), g->x.team);
  ir_value is_there = below(b, place, i32(b, g->x.blocks->count));
  g->is_own = both(b, is_there, below(b, g->x.lane, i32(b, (int64_t)g->x.teams * n)));
  for (int k = 0; k < count_of(g); k++) roots[count++] = g->x.angles->expr[k];
  if (g->gains.of) count += gpu_gain_roots(&g->gains, roots + count);
  emit_thread_operands(&g->body->exprs, roots, count);
}

static ir_loop each_slot(dense_gradient *g) {
  ir_loop loop = ir_for(g->b, i64(g->b, 0), i64(g->b, g->x.slots));
  set_block(g, narrow(g->b, loop.index));
  return loop;
}

static void clear_sums(dense_gradient *g) {
  ir *b = g->b;
  clear_matrices(g);
  if (!g->gains.of) return;
  two_float *remembered = emit_thread_remember(&g->body->exprs);
  ir_loop loop = each_slot(g);
  g->gains.stores = both(b, g->is_own, ir_compare_int(b, "eq", g->x.row, i32(b, 0)));
  gpu_clear_sums(&g->gains);
  ir_end_for(b, loop);
  emit_thread_forget(&g->body->exprs, remembered);
}

/* From what encode read the exponential is formed twice: what rows made is turned by the first. */
static void run_block(dense_gradient *g) {
  ir *b = g->b;
  sum_rows(g);
  ir_value begin = ir_select(b, g->gains.from_input, i64(b, 0), i64(b, 1));
  ir_loop loop = ir_for(b, begin, i64(b, 2));
  two_float *remembered = emit_thread_remember(&g->body->exprs);
  g->wanted = ir_compare_int(b, "eq", loop.index, i64(b, 1));
  form_matrix(g);
  ir_branch once = ir_if(b, g->wanted);
  turn_rows(g);
  ir_else(b, &once);
  turn_torque(g);
  ir_end_if(b, once);
  emit_thread_forget(&g->body->exprs, remembered);
  ir_end_for(b, loop);
  add_gains(g);
}

static void run_item(dense_gradient *g, ir_value item, int passing, const char *table) {
  ir *b = g->b;
  gpu_body *t = g->body;
  gpu_set_item(&g->gains, item);
  ir_value encoded = gpu_is_encoded(t);
  g->valid = encoded.ptr ? encoded : ir_int(b, b->i1, 1);
  gpu_load_positions(t);
  pass_channels(g, passing, table);
  ir_loop slots = each_slot(g);
  run_block(g);
  ir_end_for(b, slots);
}

/* ---- the entry ---- */

static void open_exponential(dense_gradient *g, const gpu_entry *entry) {
  g->x.b = g->b;
  g->x.name = entry->name;
  g->x.exprs = &g->body->exprs;
  g->x.more = torque_bytes(size_of(g));
  warp_open(&g->x, WARPS, g->body->thread);
}

static void open_rows(dense_gradient *g, const gpu_program *program) {
  gpu_body *t = g->body;
  gpu_open_gains(&g->gains, t, program, &g->kept);
  t->exprs.walker.turns_narrow = true;
  t->exprs.cotangents = g->gained;
  t->exprs.n_cotangents = count_of(g);
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  dense_gradient g = {.b = b, .memory = a, .x = warp_exponential_of(a, program->backward)};
  gpu_body t = gpu_open(b, a, g.x.matrix->plan, program->per_head, entry, native, host);
  int heads = program->per_head ? program->spec->heads : 1;
  const char *table = arena_printf(a, "%s_passing", entry->name);
  t.program = gpu_schedule(a, program->backward);
  g.body = &t;
  open_exponential(&g, entry);
  open_rows(&g, program);
  int passing = gpu_passing_table(b, a, g.x.blocks, t.p->spec->head_dim, table);
  ir_value line = add(b, scaled(b, t.block, WARPS), g.x.warp);
  t.exprs.head = t.owner.head = rest(b, line, heads);
  gpu_chunk chunk = gpu_open_chunk(&g.gains, quotient(b, line, heads));
  ir_branch inside = ir_if(b, chunk.exists);
  clear_sums(&g);
  ir_loop loop = ir_for(b, wide(b, chunk.begin), wide(b, chunk.end));
  run_item(&g, narrow(b, loop.index), passing, table);
  ir_end_for(b, loop);
  ir_end_if(b, inside);
  ir_return(b);
}

void gpu_add_dense_gradients(arena *a, gpu_program *program, unsigned dtypes) {
  const spec *s = program->spec;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int element = number_bytes(dtype);
    program->entry[program->n_entries++] =
        (gpu_entry){.name = arena_printf(a, "%s_%s_%s", s->name, PEGEN_PTX_WORD_GRADIENT, number_name(dtype)),
                    .of = PEGEN_LAUNCH_encode_backward,
                    .word = PEGEN_PTX_WORD_GRADIENT,
                    .kind = GPU_MATRIX_GRADIENT,
                    .emit = emit,
                    .dtype = dtype,
                    .access = element,
                    .tile = thread_tile_of_blocks(a, s->n_blocks, element, element),
                    .units = WARP,
                    .blocks = 1};
  }
}
