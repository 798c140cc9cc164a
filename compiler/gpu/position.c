/* gpu/position: coordinates of a token in a GPU thread: positions of any type, or the built-in grid's. */
#include "gpu/body.h"
#include "mlir/arith.h"

#include "kernel/launch.h"
#include "kernel/loop.h"

/* Where they come from: what stands from PEGEN_PTX_POSITIONS on among an entry's parameters. */
typedef struct source {
  ir *b;
  const spec *spec;
  const ir_value *parameter;
  ir_value batch, token; /* i32 */
} source;

enum { ADDRESS, TYPE, BATCH, TOKEN, AXIS }; /* ORDER PEGEN_PTX_POSITIONS */

static ir_value wide(ir *b, ir_value x) { return ir_cast(b, "arith.extui", x, b->i64); }

static two_float coordinate(source *s, ir_value at, bool is_f32) {
  ir *b = s->b;
  ir_value low = ir_load(b, b->i32, ir_pointer(b, at), 4);
  if (is_f32) return two_float_f32(ir_cast(b, "arith.bitcast", low, b->f32));
  ir_value type = ir_cast(b, "arith.trunci", s->parameter[TYPE], b->i32);
  ir_value is_f64 = ir_compare_int(b, "eq", type, i32(b, PEGEN_POSITION_F64)),
           is_i32 = ir_compare_int(b, "eq", type, i32(b, PEGEN_POSITION_I32));
  ir_value step = ir_select(b, is_i32, ir_int(b, b->i64, 0), ir_int(b, b->i64, 4));
  ir_value high = ir_load(b, b->i32, ir_pointer(b, add(b, at, step)), 4);
  high = ir_select(b, is_i32, ir_op2(b, "arith.shrsi", low, i32(b, 31)), high);
  return two_float_select(b, is_f64, two_float_from_f64(b, low, high), two_float_from_i64(b, low, high));
}

static void load_coordinates(source *s, ir_value *values) {
  ir *b = s->b;
  int axes = s->spec->n_axes;
  ir_value row = add(b, s->parameter[ADDRESS], mul(b, wide(b, s->batch), s->parameter[BATCH]));
  row = add(b, row, mul(b, wide(b, s->token), s->parameter[TOKEN]));
  MlirType types[2 * SPEC_MAX_AXES];
  ir_value sides[2][2 * SPEC_MAX_AXES];
  for (int i = 0; i < 2 * axes; i++) types[i] = b->f32;
  ir_value is_f32 = ir_compare_int(b, "eq", s->parameter[TYPE], ir_int(b, b->i64, PEGEN_POSITION_F32));
  ir_choice choice = ir_choose(b, is_f32, 2 * axes, types);
  for (int side = 0; side < 2; side++) {
    for (int axis = 0; axis < axes; axis++) {
      ir_value at = add(b, row, mul(b, s->parameter[AXIS], ir_int(b, b->i64, axis)));
      two_float x = coordinate(s, at, side == 0);
      sides[side][2 * axis] = x.hi;
      sides[side][2 * axis + 1] = x.lo.ptr ? x.lo : ir_float(b, b->f32, 0);
    }
    if (side == 0) ir_choose_else(b, &choice, 2 * axes, sides[0]);
  }
  ir_end_choose(b, choice, 2 * axes, sides[1], values);
}

/* Row-major coordinates of the built-in grid, the last axis fastest. */
static void grid_coordinates(source *s, ir_value *values) {
  ir *b = s->b;
  ir_value rest = sub(b, s->token, i32(b, s->spec->skip_tokens));
  for (int axis = s->spec->n_axes - 1; axis >= 0; axis--) {
    ir_value at = axis ? ir_op2(b, "arith.remui", rest, i32(b, s->spec->grid[axis])) : rest;
    values[2 * axis] = ir_cast(b, "arith.sitofp", at, b->f32);
    values[2 * axis + 1] = ir_float(b, b->f32, 0);
    if (axis) rest = ir_op2(b, "arith.divui", rest, i32(b, s->spec->grid[axis]));
  }
}

static two_float pair_at(const ir_value *values, int axis) {
  return (two_float){.hi = values[2 * axis], .lo = values[2 * axis + 1]};
}

static two_float extreme(ir *b, two_float x, two_float y, bool larger) {
  ir_value by_high = ir_compare_float(b, larger ? "ogt" : "olt", x.hi, y.hi),
           equal = ir_compare_float(b, "oeq", x.hi, y.hi),
           by_low = ir_compare_float(b, larger ? "ogt" : "olt", x.lo, y.lo);
  return two_float_select(b, ir_select(b, equal, by_low, by_high), x, y);
}

/* Of three tokens, axis by axis; a coordinate that is not finite counts as the description's own. */
static void load_median(source *s, const ir_value *own, ir_value *values) {
  ir *b = s->b;
  ir_value from[3][2 * SPEC_MAX_AXES];
  for (int i = 0; i < 3; i++) {
    s->token = i32(b, i);
    load_coordinates(s, from[i]);
  }
  for (int axis = 0; axis < s->spec->n_axes; axis++) {
    two_float x[3];
    for (int i = 0; i < 3; i++) {
      ir_value high = from[i][2 * axis],
               is_finite = ir_compare_float(b, "oeq", sub(b, high, high), ir_float(b, b->f32, 0));
      x[i] = two_float_select(b, is_finite, pair_at(from[i], axis), pair_at(own, axis));
    }
    two_float low = extreme(b, x[0], x[1], false), high = extreme(b, x[0], x[1], true),
              median = extreme(b, low, extreme(b, high, x[2], false), true);
    values[2 * axis] = median.hi;
    values[2 * axis + 1] = median.lo;
  }
}

void gpu_origin(ir *b, const spec *described, const ir_value *parameter, ir_value batch, two_float *out) {
  source s = {.b = b, .spec = described, .parameter = parameter, .batch = batch};
  int axes = described->n_axes;
  MlirType types[2 * SPEC_MAX_AXES];
  ir_value own[2 * SPEC_MAX_AXES], given[2 * SPEC_MAX_AXES], values[2 * SPEC_MAX_AXES];
  for (int axis = 0; axis < axes; axis++) {
    two_float fixed = two_float_const(b, described->polynomial->origin[axis]);
    values[2 * axis] = own[2 * axis] = fixed.hi;
    values[2 * axis + 1] = own[2 * axis + 1] = fixed.lo.ptr ? fixed.lo : ir_float(b, b->f32, 0);
  }
  if (described->polynomial->has_call_origin) {
    for (int i = 0; i < 2 * axes; i++) types[i] = b->f32;
    ir_choice choice = ir_choose(b, ir_compare_int(b, "eq", parameter[ADDRESS], ir_int(b, b->i64, 0)), 2 * axes, types);
    ir_choose_else(b, &choice, 2 * axes, own);
    load_median(&s, own, given);
    ir_end_choose(b, choice, 2 * axes, given, values);
  }
  for (int axis = 0; axis < axes; axis++) out[axis] = pair_at(values, axis);
}

void gpu_coordinates(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                     two_float *out) {
  source s = {b, described, parameter, batch, token};
  int axes = described->n_axes;
  ir_value values[2 * SPEC_MAX_AXES];
  if (described->grid[0]) {
    MlirType types[2 * SPEC_MAX_AXES];
    ir_value given[2 * SPEC_MAX_AXES], built_in[2 * SPEC_MAX_AXES];
    for (int i = 0; i < 2 * axes; i++) types[i] = b->f32;
    ir_choice choice = ir_choose(b, ir_compare_int(b, "eq", parameter[ADDRESS], ir_int(b, b->i64, 0)), 2 * axes, types);
    grid_coordinates(&s, built_in);
    ir_choose_else(b, &choice, 2 * axes, built_in);
    load_coordinates(&s, given);
    ir_end_choose(b, choice, 2 * axes, given, values);
  } else load_coordinates(&s, values);
  for (int axis = 0; axis < axes; axis++) out[axis] = pair_at(values, axis);
}
