/* cpu/attention/queries: rows of queries and outputs, turned between [token][channel] of the tensors and the
 * [channel][query] of the tile; see cpu/attention/queries.h.
 *
 * Squares of as many channels as a register has lanes are turned by a function; channels that fill no register go one
 * by one.
 */
#include "cpu/attention/queries.h"

#include "cpu/attention/columns.h"
#include "cpu/attention/dots.h"
#include "mlir/math.h"

enum { MOST_LANES = 16 };

/* ---- squares ----
 *
 * A square is turned by log2(lanes) rounds of interleaving: row i of a round meets row i + lanes / 2, and after the
 * last round they are columns. That is some 150 instructions for 16 lanes, and gradients turn rows in up to six places
 * of a tile. Forward has two of them, and windows of few keys, whose time it is: 16 keys take 5 % longer with calls.
 */

static const char *square_name(const attention_emitter *e, const char *what) {
  return arena_printf(e->memory, "%s_%s", what, e->target->suffix);
}

static void turn(const attention_emitter *e, ir_value *rows) {
  int lanes = e->shape.lanes;
  int64_t low[MOST_LANES], high[MOST_LANES];
  for (int i = 0; i < lanes; i++) {
    low[i] = i / 2 + i % 2 * lanes;
    high[i] = low[i] + lanes / 2;
  }
  for (int round = 1; round < lanes; round *= 2) {
    ir_value next[MOST_LANES];
    for (int i = 0; i < lanes / 2; i++) {
      next[2 * i] = ir_shuffle(e->b, rows[i], rows[i + lanes / 2], lanes, low);
      next[2 * i + 1] = ir_shuffle(e->b, rows[i], rows[i + lanes / 2], lanes, high);
    }
    for (int i = 0; i < lanes; i++) rows[i] = next[i];
  }
}

/* What one turn is given: addresses, and bytes as of square_rows. */
enum { FROM, FROM_ROW, FROM_NEXT, TO, TO_ROW, TO_NEXT, COUNT, FACTOR, TURN_OPERANDS };

static void emit_turned_squares(const attention_emitter *e, const ir_value *o) {
  ir *b = e->b;
  int lanes = e->shape.lanes;
  ir_value x[MOST_LANES];
  ir_loop squares = ir_for(b, i64(b, 0), o[COUNT]);
  ir_value from = ir_offset(b, o[FROM], mul(b, squares.index, o[FROM_NEXT])),
           to = ir_offset(b, o[TO], mul(b, squares.index, o[TO_NEXT]));
  for (int i = 0; i < lanes; i++) {
    x[i] = load(e, from);
    if (o[FACTOR].ptr) x[i] = mul(b, x[i], o[FACTOR]);
    from = ir_offset(b, from, o[FROM_ROW]);
  }
  turn(e, x);
  for (int i = 0; i < lanes; i++) {
    store(e, x[i], to);
    to = ir_offset(b, to, o[TO_ROW]);
  }
  ir_end_for(b, squares);
}

/* turn_T(from, row, next, to, row, next, count, factor); turn_pairs_T without the last. */
static const char *turn_name(const attention_emitter *e, bool has_factor) {
  return square_name(e, has_factor ? "turn" : "turn_pairs");
}

static void emit_turn_function(const attention_emitter *e, bool has_factor) {
  ir *b = e->b;
  MlirType types[TURN_OPERANDS] = {[FROM] = b->ptr,   [FROM_ROW] = b->i64, [FROM_NEXT] = b->i64, [TO] = b->ptr,
                                   [TO_ROW] = b->i64, [TO_NEXT] = b->i64,  [COUNT] = b->i64,     [FACTOR] = e->lanes};
  ir_value given[TURN_OPERANDS] = {[FACTOR] = {NULL}};
  ir_function(b, turn_name(e, has_factor), true, (MlirType){NULL}, FACTOR + has_factor, types, given);
  emit_turned_squares(e, given);
  ir_return(b);
}

void emit_turn(const attention_emitter *e, square_rows from, square_rows to, int64_t count, ir_value factor) {
  ir *b = e->b;
  ir_value o[TURN_OPERANDS] = {[FROM] = from.at, [TO] = to.at, [FACTOR] = factor};
  o[FROM_ROW] = i64(b, from.row), o[FROM_NEXT] = i64(b, from.next);
  o[TO_ROW] = i64(b, to.row), o[TO_NEXT] = i64(b, to.next);
  o[COUNT] = i64(b, count);
  if (e->calls_squares) ir_call(b, turn_name(e, factor.ptr), FACTOR + (factor.ptr != NULL), o);
  else emit_turned_squares(e, o);
}

static void emit_squares_between(const attention_emitter *e, ir_value from, ir_value to, ir_value row, bool to_lanes,
                                 ir_value squares) {
  ir *b = e->b;
  ir_value column = i64(b, (int64_t)e->shape.queries * 4), next_row = i64(b, (int64_t)e->shape.lanes * 4),
           next_column = i64(b, (int64_t)e->shape.lanes * e->shape.queries * 4);
  ir_value o[TURN_OPERANDS] = {[FROM] = from, [TO] = to, [COUNT] = squares, [FACTOR] = {NULL}};
  o[FROM_ROW] = to_lanes ? row : column, o[FROM_NEXT] = to_lanes ? next_row : next_column;
  o[TO_ROW] = to_lanes ? column : row, o[TO_NEXT] = to_lanes ? next_column : next_row;
  emit_turned_squares(e, o);
}

void emit_numbers_to_lanes(const attention_emitter *e, ir_value from, ir_value row, ir_value to, ir_value squares) {
  emit_squares_between(e, from, to, row, true, squares);
}

void emit_lanes_to_numbers(const attention_emitter *e, ir_value from, ir_value to, ir_value row, ir_value squares) {
  emit_squares_between(e, from, to, row, false, squares);
}

/* sum_lanes_T(from, to) */
static void emit_lane_sums_function(const attention_emitter *e) {
  ir *b = e->b;
  int lanes = e->shape.lanes;
  int64_t even[MOST_LANES], odd[MOST_LANES];
  ir_value given[2], x[MOST_LANES];
  ir_open(b, square_name(e, "sum_lanes"), "pp", given);
  for (int i = 0; i < lanes; i++) {
    even[i] = 2 * i, odd[i] = 2 * i + 1;
    x[i] = load(e, ir_offset_const(b, given[0], (int64_t)i * lanes * 4));
  }
  for (int count = lanes; count > 1; count /= 2)
    for (int i = 0; i < count / 2; i++) {
      ir_value first = ir_shuffle(b, x[2 * i], x[2 * i + 1], lanes, even),
               second = ir_shuffle(b, x[2 * i], x[2 * i + 1], lanes, odd);
      x[i] = add(b, first, second);
    }
  store(e, x[0], given[1]);
  ir_return(b);
}

void emit_square_functions(const attention_emitter *e) {
  emit_turn_function(e, !e->dots);
  if (!e->dots) emit_lane_sums_function(e);
}

void emit_lane_sums(const attention_emitter *e, ir_value from, ir_value to) {
  ir_value given[] = {from, to};
  ir_call(e->b, square_name(e, "sum_lanes"), 2, given);
}

/* ---- rows of tokens ---- */

ir_value attention_lane_token(const attention_emitter *e, ir_value vector, ir_value lane) {
  ir *b = e->b;
  ir_value tokens = ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, tokens));
  ir_value index = add(b, attention_mul(b, vector, e->shape.lanes), lane);
  return ir_load(b, b->i64, nth(b, tokens, index, 8), 8);
}

/* A register's rows, [lane][pitch] at `room`, and the same numbers as columns of [width][queries] at `columns`: whole
 * squares from one to the other. */
typedef struct square {
  ir_value room, columns;
  int width, pitch;
} square;

static ir_value row_at(const attention_emitter *e, const square *s, ir_value channel, int lane) {
  return ir_offset_const(e->b, nth(e->b, s->room, channel, 4), (int64_t)lane * s->pitch * 4);
}

static ir_value column_at(const attention_emitter *e, const square *s, ir_value channel) {
  return nth(e->b, s->columns, channel, (int64_t)e->shape.queries * 4);
}

/* Rows times a factor (a scalar spread over the lanes) as columns, or columns times factors of their lanes as rows. */
static void emit_squares(const attention_emitter *e, const square *s, ir_value factor, bool back) {
  ir *b = e->b;
  int lanes = e->shape.lanes, whole = s->width / lanes * lanes;
  int64_t row = (int64_t)s->pitch * 4, column = (int64_t)e->shape.queries * 4;
  square_rows rows = {s->room, row, (int64_t)lanes * 4}, columns = {s->columns, column, lanes * column};
  ir_value x[MOST_LANES];
  if (whole) emit_turn(e, back ? columns : rows, back ? rows : columns, whole / lanes, factor);
  for (int c = whole; c < s->width; c++) {
    ir_value at = column_at(e, s, i64(b, c)), numbers;
    if (!back) {
      for (int i = 0; i < lanes; i++) x[i] = ir_load(b, b->f32, row_at(e, s, i64(b, c), i), 4);
      numbers = ir_elements(b, e->lanes, lanes, x);
      if (factor.ptr) numbers = mul(b, numbers, factor);
      store(e, numbers, at);
    } else {
      numbers = mul(b, load(e, at), factor);
      for (int i = 0; i < lanes; i++) ir_store(b, ir_extract(b, numbers, i), row_at(e, s, i64(b, c), i), 4, false);
    }
  }
}

/* The square of register `vector` of [width][queries] numbers at `columns`, its rows at `room`. */
static square square_of(const attention_emitter *e, ir_value room, ir_value columns, ir_value vector, int width,
                        int pitch) {
  return (square){room, nth(e->b, columns, vector, (int64_t)e->shape.lanes * 4), width, pitch};
}

/* A register's rows to its room, one by one. */
static void emit_rows_of_lanes(const attention_emitter *e, const turned_rows *t, ir_value vector, ir_value to) {
  ir *b = e->b;
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.lanes));
  ir_value token = attention_lane_token(e, vector, lanes.index), room = nth(b, to, lanes.index, (int64_t)t->pitch * 4);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  ir_value row = t->by_lane ? add(b, attention_mul(b, vector, e->shape.lanes), lanes.index) : token;
  ir_value one_row[] = {ir_offset(b, t->rows.at, mul(b, row, t->rows.stride)), t->rows.stride, i64(b, 1), room};
  ir_call_pointer(b, t->read, 4, one_row);
  ir_else(b, &given);
  ir_loop empty = ir_for(b, e->zero, i64(b, t->width));
  ir_store(b, ir_float(b, b->f32, 0), nth(b, room, empty.index, 4), 4, false);
  ir_end_for(b, empty);
  ir_end_if(b, (ir_branch){given.outer, {NULL}});
  ir_end_for(b, lanes);
}

/* Reads the rows of a register's queries, by one call where its tokens, which ascend, follow each other. Elsewhere they
 * are read lane by lane. */
static void emit_register_rows(const attention_emitter *e, const turned_rows *t, ir_value vector, ir_value to) {
  ir *b = e->b;
  int lanes = e->shape.lanes;
  if (t->pitch != t->width) {
    emit_rows_of_lanes(e, t, vector, to);
    return;
  }
  ir_value first = attention_lane_token(e, vector, e->zero), last = attention_lane_token(e, vector, i64(b, lanes - 1));
  ir_value follow = ir_compare_int(b, "eq", sub(b, last, first), i64(b, lanes - 1));
  ir_branch together = ir_if(b, follow);
  ir_value row = t->by_lane ? attention_mul(b, vector, lanes) : first,
           from = ir_offset(b, t->rows.at, mul(b, row, t->rows.stride));
  ir_value of_register[] = {from, t->rows.stride, i64(b, lanes), to};
  ir_call_pointer(b, t->read, 4, of_register);
  ir_else(b, &together);
  emit_rows_of_lanes(e, t, vector, to);
  ir_end_if(b, (ir_branch){together.outer, {NULL}});
}

void emit_turned_rows(const attention_emitter *e, const turned_rows *t, ir_value factor) {
  ir *b = e->b;
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value register_room = t->room;
  if (t->keeps) register_room = nth(b, t->room, vectors.index, e->shape.lanes * t->pitch * 4);
  emit_register_rows(e, t, vectors.index, register_room);
  square s = square_of(e, register_room, t->columns, vectors.index, t->width, t->pitch);
  emit_squares(e, &s, factor, false);
  ir_end_for(b, vectors);
}

ir_value attention_scale(const attention_emitter *e) {
  ir *b = e->b;
  return ir_broadcast(b, e->lanes, ir_cast(b, "arith.truncf", ATTENTION_TILE(e, scale, b->f64), b->f32));
}

ir_value attention_natural_scale(const attention_emitter *e) {
  ir *b = e->b;
  ir_value scale = mul(b, ATTENTION_TILE(e, scale, b->f64), ir_float(b, b->f64, LN_2));
  return ir_broadcast(b, e->lanes, ir_cast(b, "arith.truncf", scale, b->f32));
}

ir_value attention_query_factor(const attention_emitter *e) { return e->dots ? (ir_value){NULL} : attention_scale(e); }

void emit_attention_columns(const attention_emitter *e, ir_value vector, ir_value rows) {
  int width = e->p->head_dim / attention_step(e);
  square s = square_of(e, rows, e->queries, vector, width, width);
  emit_squares(e, &s, attention_query_factor(e), false);
}

void emit_attention_queries(const attention_emitter *e, const attention_rows *r) {
  ir *b = e->b;
  int width = e->p->head_dim / attention_step(e);
  ir_value scale = attention_query_factor(e);
  ir_value q = ATTENTION_HEAD(e, q), stride = ATTENTION_TILE(e, q_token, b->i64);
  turned_rows t = {{q, stride}, r->read_keys, width, width, r->key_room, false, e->queries, false};
  emit_turned_rows(e, &t, scale);
}

void emit_turned_back(const attention_emitter *e, const turned_back *t, lane_factor *factor, void *context) {
  ir *b = e->b;
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value by = factor(e, context, vectors.index);
  square s = square_of(e, t->room, t->columns, vectors.index, t->width, t->width);
  emit_squares(e, &s, by, true);
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.lanes));
  ir_value token = attention_lane_token(e, vectors.index, lanes.index);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  ir_value row[] = {nth(b, t->room, lanes.index, (int64_t)t->width * 4),
                    ir_offset(b, t->rows.at, mul(b, token, t->rows.stride))};
  ir_call_pointer(b, t->write, 2, row);
  ir_end_if(b, given);
  ir_end_for(b, lanes);
  ir_end_for(b, vectors);
}

/* 1 / sum, 0 of a query that saw nothing. */
static ir_value inverse_sum(const attention_emitter *e, void *context, ir_value vector) {
  ir *b = e->b;
  ir_value zero = ir_float(b, e->lanes, 0), one = ir_float(b, e->lanes, 1), sums = *(const ir_value *)context;
  ir_value sum = load(e, nth(b, sums, vector, (int64_t)e->shape.lanes * 4));
  return ir_select(b, ir_compare_float(b, "oeq", sum, zero), zero, ir_op2(b, "arith.divf", one, sum));
}

void emit_attention_output(const attention_emitter *e, const attention_rows *r, ir_value output, ir_value sums) {
  ir_value out = ATTENTION_HEAD(e, out), stride = ATTENTION_TILE(e, out_token, e->b->i64);
  turned_back t = {{out, stride}, r->write, e->p->value_dim, r->value_room, output};
  emit_turned_back(e, &t, inverse_sum, &sums);
}

/* ---- log-sum-exp ---- */

static ir_value wide(const attention_emitter *e, ir_value x) { return ir_cast(e->b, "arith.extf", x, e->b->f64); }

ir_value attention_lse(const attention_emitter *e, ir_value maximum, ir_value constant, ir_value sum) {
  ir *b = e->b;
  maximum = wide(e, maximum);
  if (constant.ptr) maximum = add(b, maximum, wide(e, constant));
  ir_value lse = add(b, mul(b, maximum, ir_float(b, ir_type(maximum), LN_2)), math_log_f64(b, wide(e, sum))),
           seen = ir_compare_float(b, "une", sum, ir_float(b, ir_type(sum), 0));
  return ir_select(b, seen, ir_cast(b, "arith.truncf", lse, b->f32), ir_float(b, ir_type(sum), -__builtin_inf()));
}

void emit_attention_lse(const attention_emitter *e, ir_value maxima, ir_value sums) {
  ir *b = e->b;
  ir_value at = ATTENTION_HEAD(e, lse), token_bytes = ATTENTION_TILE(e, lse_token, b->i64);
  ir_branch wanted = ir_if(b, attention_is_given(e, at));
  for (int x = 0; x < e->shape.vectors; x++) {
    ir_value at_lanes = attention_at_constant(e, maxima, 0, x), maximum = load(e, at_lanes),
             sum = load(e, attention_at_constant(e, sums, 0, x)),
             constant = e->p->columns ? emit_columns_constant(e, x) : (ir_value){NULL};
    store(e, attention_lse(e, maximum, constant, sum), at_lanes);
  }
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.queries));
  ir_value token = attention_lane_token(e, e->zero, lanes.index);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  ir_store(b, ir_load(b, b->f32, nth(b, maxima, lanes.index, 4), 4), ir_offset(b, at, mul(b, token, token_bytes)), 4,
           false);
  ir_end_if(b, given);
  ir_end_for(b, lanes);
  ir_end_if(b, wanted);
}
