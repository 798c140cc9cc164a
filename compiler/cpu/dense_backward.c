/* cpu/dense_backward: see cpu/dense_backward.h. */
#include "cpu/dense_backward.h"

#include "cpu/apply_rows.h"
#include "cpu/basis_adjoint.h"
#include "cpu/exponential.h"
#include "cpu/gradient.h"
#include "cpu/product.h"
#include "cpu/schedule.h"
#include "cpu/torus.h"
#include "mlir/arith.h"

const char *emit_adjoint_of(arena *a, const dense_shape *shape, const cpu_target *target) {
  return emit_matrix_name(a, target, shape->in_lanes && shape->matrix->blocks.count < shape->unit);
}

/* ---- what operands and positions gain ---- */

const plan_gradient *dense_gradient_of(arena *a, const program *scheduled, const dense_shape *shape) {
  if (shape->matrix->skew.source == SOURCE_PRODUCT) return plan_gradient_build(a, program_plan(scheduled));
  const program_op *eval = scheduled->value[shape->matrix->argument[0]].maker;
  return plan_gradient_of_values(a, eval->plan, shape->per_head, eval->expr, eval->n_exprs);
}

gradient_code dense_gradient_code(arena *a, const plan_gradient *of, const cpu_target *target) {
  return (gradient_code){
      .memory = a, .of = of, .target = emit_gradient_target(a, target), .whole = of ? of->token->spec : NULL};
}

/* From torques to angles and generators. */
static void emit_adjoint(ir *b, arena *a, const program *scheduled, const dense_shape *shape,
                         const cpu_target *target) {
  const program_op *matrix = shape->matrix;
  const program_skew *skew = &matrix->skew;
  const char *name = emit_adjoint_of(a, shape, target);
  matrix_shape m = matrix_shape_of(b, target, matrix->blocks.size, skew->in_f64);
  if (skew->source == SOURCE_PRODUCT) {
    const plan *turns = program_plan(scheduled);
    chunk_walk walk = emit_chunks_of(b, a, turns, plan_tile_build(a, turns, target->lanes), target);
    emit_basis_adjoint(&walk, dense_gradient_of(a, scheduled, shape), name);
  } else if (skew->source == SOURCE_SCHUR) emit_turns_adjoint(b, target, matrix->blocks.size, name, skew->factor);
  else if (shape->in_lanes)
    emit_exponential_lanes_adjoint(b, target, skew->in_f64, matrix->blocks.size, shape->unit, name, skew->count,
                                   shape->angle_bytes, skew->factor);
  else emit_exponential_adjoint(b, &m, name, skew->count, shape->angle_bytes, skew->factor);
}

static void emit_gains(ir *b, arena *a, const program *scheduled, const dense_shape *shape, const cpu_target *target,
                       unsigned dtypes) {
  const plan_gradient *of = dense_gradient_of(a, scheduled, shape);
  emit_adjoint(b, a, scheduled, shape, target);
  int size = shape->matrix->blocks.size;
  bool is_f64 = shape->matrix->skew.in_f64;
  int64_t padded = matrix_shape_of(b, target, size, is_f64).padded;
  emit_collect(b, target, is_f64, shape->in_lanes ? (int64_t)size * size * shape->unit : padded * padded,
               emit_collect_name(a, target));
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype) emit_wedge(b, a, shape, dtype, target, emit_wedge_name(a, target, dtype));
  if (!of) return;
  gradient_code g = dense_gradient_code(a, of, target);
  emit_gradient_expressions(b, a, &g);
}

/* ---- the transposes of a table's matrices ---- */

typedef struct transposer {
  ir *b;
  int size, lanes;
  ir_value in, out; /* of the matrix at hand */
} transposer;

static ir_value entry_at(const transposer *t, ir_value matrix, ir_value row, int64_t down, ir_value column,
                         int64_t right) {
  ir_value at = add(t->b, mul(t->b, add(t->b, row, i64(t->b, down)), i64(t->b, t->size)), column);
  return ir_offset_const(t->b, ir_offset(t->b, matrix, mul(t->b, at, i64(t->b, 4))), right * 4);
}

/* `width` rows from `row` and as many columns from `column` on. */
static void transpose_square(const transposer *t, int width, ir_value row, ir_value column) {
  ir *b = t->b;
  ir_value rows[64];
  for (int i = 0; i < width; i++)
    rows[i] = ir_load(b, ir_vector(b, width, b->f32), entry_at(t, t->in, row, i, column, 0), 4);
  emit_transpose(b, width, rows);
  for (int i = 0; i < width; i++) ir_store(b, rows[i], entry_at(t, t->out, column, i, row, 0), 4, false);
}

/* Rows cut into `height` from `first_row` on and columns into `width`, both powers of two. */
static void transpose_piece(const transposer *t, int first_row, int height, int first_column, int width) {
  ir *b = t->b;
  int side = height < width ? height : width;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, (height > width ? height : width) / side));
  ir_value along = mul(b, loop.index, i64(b, side)), row = i64(b, first_row), column = i64(b, first_column);
  if (height > width) row = add(b, row, along);
  else column = add(b, column, along);
  transpose_square(t, side, row, column);
  ir_end_for(b, loop);
}

/* Whole vectors of rows and columns in one code, then what is left of both. */
static void transpose_columns(const transposer *t, const apply_shape *shape) {
  ir *b = t->b;
  int whole = t->size / t->lanes;
  if (whole > 0) {
    ir_loop down = ir_for(b, i64(b, 0), i64(b, whole)), right = ir_for(b, i64(b, 0), i64(b, whole));
    ir_value row = mul(b, down.index, i64(b, t->lanes)), column = mul(b, right.index, i64(b, t->lanes));
    transpose_square(t, t->lanes, row, column);
    ir_end_for(b, right);
    ir_end_for(b, down);
  }
  for (int i = 0; i < shape->n_pieces; i++)
    for (int j = 0; j < shape->n_pieces; j++)
      if (i >= whole || j >= whole)
        transpose_piece(t, shape->start[i], shape->width[i], shape->start[j], shape->width[j]);
}

/* Diagonal k of `together` blocks side by side: entry (i, i ^ k) of the transpose is (i ^ k, i), in the same diagonal.
 */
static void transpose_diagonals(const transposer *t, int together) {
  ir *b = t->b;
  int all = together * t->size, width = all < t->lanes ? all : t->lanes, cycle = width < t->size ? width : t->size;
  for (int k = 0; k < t->size; k++)
    for (int v = 0; v < all / width; v++) {
      int64_t mask[64], from = k * all + (v ^ k / cycle) * width, to = k * all + v * width;
      for (int i = 0; i < width; i++) mask[i] = i ^ k % cycle;
      ir_value diagonal = ir_load(b, ir_vector(b, width, b->f32), ir_offset_const(b, t->in, from * 4), 4);
      ir_store(b, ir_shuffle(b, diagonal, diagonal, width, mask), ir_offset_const(b, t->out, to * 4), 4, false);
    }
}

/* NAME(in, blocks, out): blocks beyond the last whole `together`, at most one, are by themselves. */
static void emit_transposes(ir *b, const cpu_target *target, int size, matrix_layout layout, const char *name) {
  ir_value arguments[3];
  apply_shape shape = apply_shape_of(target, size, layout);
  transposer t = {.b = b, .size = size, .lanes = target->lanes};
  ir_open(b, name, "pip", arguments);
  ir_value done = i64(b, 0);
  for (int together = layout == MATRIX_DIAGONALS ? 2 : 1; together >= 1; together--) {
    int64_t bytes = (int64_t)together * size * size * 4;
    ir_value left = sub(b, arguments[1], done);
    ir_value turns = ir_op2(b, "arith.divui", left, i64(b, together));
    ir_loop loop = ir_for(b, i64(b, 0), turns);
    ir_value at = add(b, mul(b, done, i64(b, (int64_t)size * size * 4)), mul(b, loop.index, i64(b, bytes)));
    t.in = ir_offset(b, arguments[0], at);
    t.out = ir_offset(b, arguments[2], at);
    if (layout == MATRIX_DIAGONALS) transpose_diagonals(&t, together);
    else transpose_columns(&t, &shape);
    ir_end_for(b, loop);
    done = add(b, done, mul(b, turns, i64(b, together)));
  }
  ir_return(b);
}

void emit_dense_backward(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes) {
  const program *scheduled = cpu_schedule(a, encode);
  dense_shape shape = dense_shape_of(a, scheduled, target);
  emit_transposes(b, target, shape.matrix->blocks.size, shape.layout, emit_transpose_name(a, target));
  emit_gains(b, a, scheduled, &shape, target, dtypes);
}
