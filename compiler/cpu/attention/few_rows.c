/* cpu/attention/few_rows: see cpu/attention/few_rows.h. */
#include "cpu/attention/few_rows.h"

#include "mlir/number.h"

few_row few_row_of(const attention_emitter *e, int type, int width) {
  few_row row = {.type = type, .width = width, .lanes = e->target->lanes};
  while (row.lanes > width) row.lanes /= 2;
  row.registers = type == NUMBER_BF16 ? 2 : 1;
  row.unit = row.registers * row.lanes;
  row.units = width / row.unit;
  int at = row.units * row.unit;
  if (width - at >= row.lanes) {
    row.tail_channel[row.tail] = at;
    row.tail_counted[row.tail++] = row.lanes;
    at += row.lanes;
  }
  if (at < width) {
    row.tail_channel[row.tail] = width - row.lanes;
    row.tail_counted[row.tail++] = width - at;
  }
  return row;
}

int few_row_registers(const few_row *row) { return row->units * row->registers + row->tail; }

MlirType few_row_lanes(const attention_emitter *e, const few_row *row) {
  return ir_vector(e->b, row->lanes, e->b->f32);
}

void emit_few_unit(const attention_emitter *e, const few_row *row, ir_value at, ir_value *x) {
  ir *b = e->b;
  if (row->registers == 1) {
    x[0] = emit_load_channels(b, e->target->native, row->type, row->lanes, at);
    return;
  }
  MlirType words = ir_vector(b, row->lanes, b->i32);
  ir_value both = ir_load(b, words, at, 2);
  x[0] = ir_cast(b, "arith.bitcast", ir_op2(b, "arith.shli", both, ir_int(b, words, 16)), b->f32);
  x[1] = ir_cast(b, "arith.bitcast", ir_op2(b, "arith.andi", both, ir_int(b, words, 0xffff0000ll)), b->f32);
}

static ir_value tail_at(const attention_emitter *e, const few_row *row, int i, ir_value at) {
  return ir_offset_const(e->b, at, (int64_t)row->tail_channel[i] * number_bytes(row->type));
}

ir_value emit_few_tail(const attention_emitter *e, const few_row *row, int i, ir_value at) {
  return emit_load_channels(e->b, e->target->native, row->type, row->lanes, tail_at(e, row, i, at));
}

ir_value emit_few_counted(const attention_emitter *e, const few_row *row, int i, ir_value at) {
  ir_value x = emit_few_tail(e, row, i, at);
  if (row->tail_counted[i] == row->lanes) return x;
  bool counted[64];
  for (int lane = 0; lane < row->lanes; lane++) counted[lane] = lane >= row->lanes - row->tail_counted[i];
  return ir_select(e->b, ir_bools(e->b, row->lanes, counted), x, ir_float(e->b, few_row_lanes(e, row), 0));
}

void emit_few_store_unit(const attention_emitter *e, const few_row *row, const ir_value *x, ir_value at) {
  ir *b = e->b;
  int lanes = row->lanes;
  for (int i = 0; i < row->registers; i++) {
    ir_value in_order = x[0];
    if (row->registers == 2) {
      int64_t mask[64];
      for (int lane = 0; lane < lanes; lane++) mask[lane] = lane % 2 * lanes + (i * lanes + lane) / 2;
      in_order = ir_shuffle(b, x[0], x[1], lanes, mask);
    }
    ir_value to = ir_offset_const(b, at, (int64_t)i * lanes * number_bytes(row->type));
    emit_store_channels(b, e->target->native, row->type, in_order, to, false);
  }
}

void emit_few_store_tail(const attention_emitter *e, const few_row *row, int i, ir_value x, ir_value at) {
  emit_store_channels(e->b, e->target->native, row->type, x, tail_at(e, row, i, at), false);
}

int64_t few_query_bytes(const attention_plan *p) { return (int64_t)attention_pitch(p->head_dim) * 4; }

int64_t few_maximum_offset(const attention_plan *p) { return (int64_t)attention_pitch(p->value_dim) * 4; }

int64_t few_sum_offset(const attention_plan *p) { return few_maximum_offset(p) + PEGEN_ATTENTION_PITCH * 4; }
