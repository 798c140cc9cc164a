/* cpu/attention/squares: see cpu/attention/squares.h.
 *
 * A square is turned by log2(lanes) rounds of interleaving: row i of a round meets row i + lanes / 2, and after the
 * last round they are columns. That is some 150 instructions for 16 lanes, and gradients turn rows in up to six places
 * of a tile. Forward has two of them, and windows of few keys, whose time it is: 16 keys take 5 % longer with calls.
 */
#include "cpu/attention/squares.h"

enum { MOST_LANES = 16 };

static const char *name_of(const attention_emitter *e, const char *what) {
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

static void emit_squares(const attention_emitter *e, const ir_value *o) {
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
  return name_of(e, has_factor ? "turn" : "turn_pairs");
}

static void emit_turn_function(const attention_emitter *e, bool has_factor) {
  ir *b = e->b;
  MlirType types[TURN_OPERANDS] = {[FROM] = b->ptr,   [FROM_ROW] = b->i64, [FROM_NEXT] = b->i64, [TO] = b->ptr,
                                   [TO_ROW] = b->i64, [TO_NEXT] = b->i64,  [COUNT] = b->i64,     [FACTOR] = e->lanes};
  ir_value given[TURN_OPERANDS] = {[FACTOR] = {NULL}};
  ir_function(b, turn_name(e, has_factor), true, (MlirType){NULL}, FACTOR + has_factor, types, given);
  emit_squares(e, given);
  ir_return(b);
}

void emit_turn(const attention_emitter *e, square_rows from, square_rows to, int64_t count, ir_value factor) {
  ir *b = e->b;
  ir_value o[TURN_OPERANDS] = {[FROM] = from.at, [TO] = to.at, [FACTOR] = factor};
  o[FROM_ROW] = i64(b, from.row), o[FROM_NEXT] = i64(b, from.next);
  o[TO_ROW] = i64(b, to.row), o[TO_NEXT] = i64(b, to.next);
  o[COUNT] = i64(b, count);
  if (e->calls_squares) ir_call(b, turn_name(e, factor.ptr), FACTOR + (factor.ptr != NULL), o);
  else emit_squares(e, o);
}

/* sum_lanes_T(from, to) */
static void emit_lane_sums_function(const attention_emitter *e) {
  ir *b = e->b;
  int lanes = e->shape.lanes;
  int64_t even[MOST_LANES], odd[MOST_LANES];
  MlirType types[] = {b->ptr, b->ptr};
  ir_value given[2], x[MOST_LANES];
  ir_function(b, name_of(e, "sum_lanes"), true, (MlirType){NULL}, 2, types, given);
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
  ir_call(e->b, name_of(e, "sum_lanes"), 2, given);
}
