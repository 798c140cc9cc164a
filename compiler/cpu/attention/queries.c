/* cpu/attention/queries: rows of queries and outputs, turned between [token][channel] of the tensors and the
 * [channel][query] of the tile; see cpu/attention/queries.h.
 *
 * A square of as many channels as a register has lanes is turned by log2(lanes) rounds of interleaving: row i of a
 * round meets row i + lanes / 2, and after the last round they are columns. Channels that fill no register go one by
 * one.
 */
#include "cpu/attention/queries.h"
#include "mlir/arith.h"

enum { MOST_LANES = 16 };

static ir_value load(const attention_emitter *e, ir_value at) { return ir_load(e->b, e->lanes, at, 4); }
static void store(const attention_emitter *e, ir_value v, ir_value at) { ir_store(e->b, v, at, 4, false); }

static void emit_turn(const attention_emitter *e, ir_value *rows) {
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

/* The token of lane `lane` of register `vector`; both i64. */
static ir_value lane_token(const attention_emitter *e, ir_value vector, ir_value lane) {
  ir *b = e->b;
  ir_value tokens = ir_offset_const(b, e->tile, offsetof(pegen_attention_tile, tokens));
  ir_value index = attention_add(b, attention_mul(b, vector, e->shape.lanes), lane);
  return ir_load(b, b->i64, ir_offset(b, tokens, attention_mul(b, index, 8)), 8);
}

/* A register's rows, [lane][width] at `room`, and the same numbers as columns of [width][queries] at `columns`: whole
 * squares from one to the other. */
typedef struct square {
  ir_value room, columns;
  int width;
} square;

static ir_value row_at(const attention_emitter *e, const square *s, ir_value channel, int lane) {
  return ir_offset_const(e->b, ir_offset(e->b, s->room, attention_mul(e->b, channel, 4)), (int64_t)lane * s->width * 4);
}

static ir_value column_at(const attention_emitter *e, const square *s, ir_value channel, int further) {
  ir_value at = ir_offset(e->b, s->columns, attention_mul(e->b, channel, (int64_t)e->shape.queries * 4));
  return ir_offset_const(e->b, at, (int64_t)further * e->shape.queries * 4);
}

/* Rows times a factor (a scalar spread over the lanes) as columns, or columns times factors of their lanes as rows. */
static void emit_squares(const attention_emitter *e, const square *s, ir_value factor, bool back) {
  ir *b = e->b;
  int lanes = e->shape.lanes, whole = s->width / lanes * lanes;
  ir_value x[MOST_LANES];
  ir_loop loop = ir_for(b, e->zero, i64(b, s->width / lanes));
  ir_value channel = attention_mul(b, loop.index, lanes);
  for (int i = 0; i < lanes; i++) x[i] = load(e, back ? column_at(e, s, channel, i) : row_at(e, s, channel, i));
  for (int i = 0; back && i < lanes; i++) x[i] = ir_op2(b, "arith.mulf", x[i], factor);
  emit_turn(e, x);
  for (int i = 0; !back && i < lanes; i++) x[i] = ir_op2(b, "arith.mulf", x[i], factor);
  for (int i = 0; i < lanes; i++) store(e, x[i], back ? row_at(e, s, channel, i) : column_at(e, s, channel, i));
  ir_end_for(b, loop);
  for (int c = whole; c < s->width; c++) {
    ir_value at = column_at(e, s, i64(b, c), 0), column;
    if (!back) {
      for (int i = 0; i < lanes; i++) x[i] = ir_load(b, b->f32, row_at(e, s, i64(b, c), i), 4);
      column = ir_op2(b, "arith.mulf", ir_elements(b, e->lanes, lanes, x), factor);
      store(e, column, at);
    } else {
      column = ir_op2(b, "arith.mulf", load(e, at), factor);
      for (int i = 0; i < lanes; i++) ir_store(b, ir_extract(b, column, i), row_at(e, s, i64(b, c), i), 4, false);
    }
  }
}

/* The square of register `vector` of [width][queries] numbers at `base`, its rows at `room`. */
static square square_of(const attention_emitter *e, ir_value room, ir_value base, ir_value vector, int width) {
  return (square){room, ir_offset(e->b, base, attention_mul(e->b, vector, (int64_t)e->shape.lanes * 4)), width};
}

void emit_attention_queries(const attention_emitter *e, const attention_rows *r) {
  ir *b = e->b;
  int width = e->p->head_dim;
  ir_value scale = ir_broadcast(b, e->lanes, ir_cast(b, "arith.truncf", ATTENTION_TILE(e, scale, b->f64), b->f32));
  ir_value q = ATTENTION_HEAD(e, q), stride = ATTENTION_TILE(e, q_token, b->i64);
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.lanes));
  ir_value token = lane_token(e, vectors.index, lanes.index),
           room = ir_offset(b, r->key_room, attention_mul(b, lanes.index, (int64_t)width * 4));
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  ir_value one_row[] = {ir_offset(b, q, ir_op2(b, "arith.muli", token, stride)), stride, i64(b, 1), room};
  ir_call_pointer(b, r->read_keys, 4, one_row);
  ir_else(b, &given);
  ir_loop empty = ir_for(b, e->zero, i64(b, width));
  ir_store(b, ir_float(b, b->f32, 0), ir_offset(b, room, attention_mul(b, empty.index, 4)), 4, false);
  ir_end_for(b, empty);
  ir_end_if(b, (ir_branch){given.outer, {NULL}});
  ir_end_for(b, lanes);
  square s = square_of(e, r->key_room, e->queries, vectors.index, width);
  emit_squares(e, &s, scale, false);
  ir_end_for(b, vectors);
}

void emit_attention_output(const attention_emitter *e, const attention_rows *r, ir_value output, ir_value sums) {
  ir *b = e->b;
  int width = e->p->value_dim;
  ir_value zero = ir_float(b, e->lanes, 0), one = ir_float(b, e->lanes, 1);
  ir_value out = ATTENTION_HEAD(e, out), stride = ATTENTION_TILE(e, out_token, b->i64);
  ir_loop vectors = ir_for(b, e->zero, i64(b, e->shape.vectors));
  ir_value sum = load(e, ir_offset(b, sums, attention_mul(b, vectors.index, (int64_t)e->shape.lanes * 4)));
  ir_value inverse = ir_select(b, ir_compare_float(b, "oeq", sum, zero), zero, ir_op2(b, "arith.divf", one, sum));
  square s = square_of(e, r->value_room, output, vectors.index, width);
  emit_squares(e, &s, inverse, true);
  ir_loop lanes = ir_for(b, e->zero, i64(b, e->shape.lanes));
  ir_value token = lane_token(e, vectors.index, lanes.index);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, e->zero));
  ir_value row[] = {ir_offset(b, r->value_room, attention_mul(b, lanes.index, (int64_t)width * 4)),
                    ir_offset(b, out, ir_op2(b, "arith.muli", token, stride))};
  ir_call_pointer(b, r->write, 2, row);
  ir_end_if(b, given);
  ir_end_for(b, lanes);
  ir_end_for(b, vectors);
}
