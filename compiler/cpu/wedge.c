/* cpu/wedge: what a row adds to the torques of its blocks; see cpu/dense_backward.h. */
#include "cpu/dense_backward.h"

#include "cpu/apply_rows.h"
#include "cpu/product.h"
#include "mlir/arith.h"

enum { CACHE_LINE = 64, G = 0, Y = 1 };

typedef struct wedge {
  applier e;
  apply_request request;
  matrix_shape m;
  ir_value row[2], count, outer;
} wedge;

static ir_value load_floats(const wedge *w, ir_value from, int width) {
  ir *b = w->e.b;
  ir_value v = ir_load(b, ir_vector(b, width, b->f32), from, 4);
  return w->m.bytes == 8 ? ir_cast(b, "arith.extf", v, b->f64) : v;
}

static void add_product(const wedge *w, ir_value x, ir_value y, ir_value at) {
  ir *b = w->e.b;
  ir_value sum = ir_load(b, ir_type(y), at, w->m.bytes);
  ir_store(b, emit_multiply_add(b, w->e.target, x, y, sum), at, w->m.bytes, false);
}

/* The channels of the block at hand, of one of the rows, as float32. */
static ir_value fetch(wedge *w, int which) {
  applier *e = &w->e;
  ir_value at = w->row[which];
  if (e->contiguous) {
    int64_t channel = (int64_t)e->channel_bytes;
    ir_value shift = mul(e->b, e->block, i64(e->b, e->size * channel));
    at = ir_offset(e->b, ir_offset_const(e->b, at, e->of->blocks.channel[0] * channel), shift);
  }
  return emit_fetch(e, 0, at, which);
}

/* ---- one block: rows of the product in memory ---- */

static void emit_block(wedge *w) {
  applier *e = &w->e;
  ir *b = e->b;
  ir_value channels[2] = {fetch(w, G), fetch(w, Y)}, y[64];
  for (int p = 0; p < e->shape.n_pieces; p++)
    y[p] = load_floats(w, ir_offset_const(b, channels[Y], e->shape.start[p] * 4), e->shape.width[p]);
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, e->size));
  ir_value x = load_floats(w, ir_offset(b, channels[G], mul(b, rows.index, i64(b, 4))), 1);
  ir_value row = ir_offset(b, w->outer, mul(b, rows.index, i64(b, (int64_t)w->m.padded * w->m.bytes)));
  x = ir_extract(b, x, 0);
  for (int p = 0; p < e->shape.n_pieces; p++) {
    ir_value at = ir_offset_const(b, row, (int64_t)e->shape.start[p] * w->m.bytes);
    add_product(w, ir_broadcast(b, ir_type(y[p]), x), y[p], at);
  }
  ir_end_for(b, rows);
}

/* ---- a block in each lane ---- */

/* Component by component float32 [size][unit], zeros in lanes that have no block. */
static ir_value spread(wedge *w, int which, int unit, ir_value first) {
  applier *e = &w->e;
  ir *b = e->b;
  ir_value lanes = ir_alloca(b, (int64_t)e->size * unit * 4, CACHE_LINE);
  MlirType vector = ir_vector(b, unit, b->f32);
  for (int c = 0; c < e->size; c++)
    ir_store(b, ir_float(b, vector, 0), ir_offset_const(b, lanes, (int64_t)c * unit * 4), 4, false);
  ir_loop blocks = ir_for(b, i64(b, 0), w->count);
  e->block = add(b, first, blocks.index);
  ir_value channels = fetch(w, which), lane = ir_offset(b, lanes, mul(b, blocks.index, i64(b, 4)));
  for (int c = 0; c < e->size; c++) {
    ir_value x = ir_load(b, b->f32, ir_offset_const(b, channels, c * 4), 4);
    ir_store(b, x, ir_offset_const(b, lane, (int64_t)c * unit * 4), 4, false);
  }
  ir_end_for(b, blocks);
  return lanes;
}

static void emit_lanes(wedge *w, int unit) {
  applier *e = &w->e;
  ir *b = e->b;
  ir_value first = e->block, of_g = spread(w, G, unit, first), of_y = spread(w, Y, unit, first), y[64];
  for (int j = 0; j < e->size; j++) y[j] = load_floats(w, ir_offset_const(b, of_y, (int64_t)j * unit * 4), unit);
  for (int i = 0; i < e->size; i++) {
    ir_value x = load_floats(w, ir_offset_const(b, of_g, (int64_t)i * unit * 4), unit);
    for (int j = 0; j < e->size; j++)
      add_product(w, x, y[j], ir_offset_const(b, w->outer, (int64_t)(i * e->size + j) * unit * w->m.bytes));
  }
}

void emit_wedge(ir *b, arena *a, const dense_shape *shape, int dtype, const cpu_target *target, const char *name) {
  const program_op *matrix = shape->matrix;
  wedge w = {.request = {.blocks = matrix->blocks, .layout = MATRIX_COLUMNS, .dtype = dtype},
             .m = matrix_shape_of(b, target, matrix->blocks.size, matrix->skew.in_f64)};
  ir_value arguments[5];
  applier *e = &w.e;
  *e = emit_begin_applier(b, a, &w.request, target, name);
  ir_open(b, name, "ppiip", arguments);
  emit_open_applier(e);
  for (int i = 0; i < 2; i++) w.row[i] = arguments[i];
  e->block = arguments[2];
  w.count = arguments[3];
  w.outer = arguments[4];
  if (shape->in_lanes) emit_lanes(&w, shape->unit);
  else emit_block(&w);
  ir_return(b);
}
