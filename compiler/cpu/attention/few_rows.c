/* cpu/attention/few_rows: see cpu/attention/few.h. */
#include "cpu/attention/few.h"

#include "mlir/number.h"

#include <string.h>

few_row few_row_of(const attention_emitter *e, unsigned dtypes, int width) {
  few_row row = {.dtypes = dtypes, .width = width, .lanes = e->target->lanes, .type = FEW(e, type, e->b->i64)};
  while (row.lanes > width) row.lanes /= 2;
  row.pairs = width / row.lanes / 2;
  if (width / row.lanes % 2) {
    row.tail_channel[row.tail] = 2 * row.pairs * row.lanes;
    row.tail_counted[row.tail++] = row.lanes;
  }
  if (width % row.lanes) {
    row.tail_channel[row.tail] = width - row.lanes;
    row.tail_counted[row.tail++] = width % row.lanes;
  }
  return row;
}

MlirType few_row_lanes(const attention_emitter *e, const few_row *row) {
  return ir_vector(e->b, row->lanes, e->b->f32);
}

few_place few_pair_place(const few_row *row, int64_t pair, ir_value at, ir_value index) {
  return (few_place){.row = at, .channel = 2 * pair * row->lanes, .index = index, .is_pair = true};
}

few_place few_tail_place(const few_row *row, int i, ir_value at) {
  return (few_place){.row = at, .channel = row->tail_channel[i]};
}

static int first_of(unsigned dtypes) {
  int type = 0;
  while (!(dtypes >> type & 1)) type++;
  return type;
}

/* Where it is of that type, behind the row's begin. */
static ir_value place_from(const attention_emitter *e, const few_row *row, const few_place *place, ir_value begin,
                           int type) {
  ir_value at = ir_offset_const(e->b, begin, place->channel * number_bytes(type));
  return place->index.ptr ? nth(e->b, at, place->index, (int64_t)2 * row->lanes * number_bytes(type)) : at;
}

static void ask_ahead(const attention_emitter *e, const few_row *row, const few_place *place, int type) {
  int bytes = (place->is_pair ? 2 : 1) * row->lanes * number_bytes(type);
  ir_value at = place_from(e, row, place, place->ahead, type);
  for (int line = 0; line < bytes; line += CACHE_LINE) ir_prefetch(e->b, ir_offset_const(e->b, at, line), 1);
}

typedef struct few_loads {
  const attention_emitter *e;
  const few_place *places;
  int count;
} few_loads;

static void load_as(const void *context, const few_row *row, ir_value *x) {
  const few_loads *l = context;
  const attention_emitter *e = l->e;
  for (int i = 0, type = first_of(row->dtypes); i < l->count; i++) {
    const few_place *place = &l->places[i];
    ir_value at = place_from(e, row, place, place->row, type);
    if (place->ahead.ptr) ask_ahead(e, row, place, type);
    if (place->is_pair) emit_load_channel_pair(e->b, e->target->native, type, row->lanes, at, x);
    else *x = emit_load_channels(e->b, e->target->native, type, row->lanes, at);
    x += place->is_pair ? 2 : 1;
  }
}

static int registers_of(int count, const few_place *places) {
  int registers = count;
  for (int i = 0; i < count; i++) registers += places[i].is_pair;
  return registers;
}

static ir_value is_type(const attention_emitter *e, const few_row *row, int type) {
  return ir_compare_int(e->b, "eq", row->type, i64(e->b, type));
}

/* Behind a branch for each type. */
static void emit_any(const attention_emitter *e, const few_row *row, int count, few_body *body, const void *context,
                     ir_value *values) {
  unsigned first = 1u << first_of(row->dtypes);
  few_row one = *row, others = *row;
  ir_value side[FEW_MAX_VALUES];
  one.dtypes = first;
  others.dtypes = row->dtypes & ~first;
  if (!others.dtypes) {
    body(context, row, values);
    return;
  }
  memcpy(side, values, (size_t)count * sizeof *side);
  ir_choice choice = ir_choose_alike(e->b, is_type(e, row, first_of(first)), count, few_row_lanes(e, row));
  body(context, &one, side);
  ir_choose_else(e->b, &choice, count, side);
  memcpy(side, values, (size_t)count * sizeof *side);
  emit_any(e, &others, count, body, context, side);
  ir_end_choose(e->b, choice, count, side, values);
}

void emit_few_load(const attention_emitter *e, const few_row *row, int count, const few_place *places, ir_value *x) {
  few_loads loads = {.e = e, .places = places, .count = count};
  int registers = registers_of(count, places);
  for (int i = 0; i < registers; i++) x[i] = (ir_value){NULL};
  emit_any(e, row, registers, load_as, &loads, x);
}

void emit_few_loops(const attention_emitter *e, const few_row *row, int count, few_body *body, const void *context,
                    ir_value *sums) {
  if (e->target->registers >= 32) body(context, row, sums);
  else emit_any(e, row, count, body, context, sums);
}

ir_value emit_few_counted(const attention_emitter *e, const few_row *row, int i, ir_value x) {
  if (row->tail_counted[i] == row->lanes) return x;
  bool counted[64];
  for (int lane = 0; lane < row->lanes; lane++) counted[lane] = lane >= row->lanes - row->tail_counted[i];
  return ir_select(e->b, ir_bools(e->b, row->lanes, counted), x, ir_float(e->b, few_row_lanes(e, row), 0));
}

void emit_few_store(const attention_emitter *e, const few_row *row, const few_place *place, const ir_value *x) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    if (!(row->dtypes >> type & 1)) continue;
    ir_branch branch = ir_if(e->b, is_type(e, row, type));
    ir_value at = place_from(e, row, place, place->row, type);
    if (place->is_pair) emit_store_channel_pair(e->b, e->target->native, type, x, at);
    else emit_store_channels(e->b, e->target->native, type, *x, at, false);
    ir_end_if(e->b, branch);
  }
}

ir_value few_row_pointer(const attention_emitter *e, size_t offset, ir_value index) {
  ir_value all = ir_offset_const(e->b, e->tile, (int64_t)offset);
  return ir_load(e->b, e->b->ptr, nth(e->b, all, index, 8), 8);
}

int64_t few_query_bytes(const attention_plan *p) { return (int64_t)attention_pitch(p->head_dim) * 4; }

int64_t few_maximum_offset(const attention_plan *p) { return (int64_t)attention_pitch(p->value_dim) * 4; }

int64_t few_sum_offset(const attention_plan *p) { return few_maximum_offset(p) + PEGEN_ATTENTION_PITCH * 4; }
