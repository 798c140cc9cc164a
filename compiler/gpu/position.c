/* gpu/position: coordinates of a token in a GPU thread: positions of any type, or the built-in grid's.
 *
 * Attention computes with displacements, so a token's place is its distance from an origin in its neighbourhood, three
 * float32 whose sum is exact. The parts of two places have so few bits that each pair of parts differs exactly, where
 * the places are near each other: an int64 and a float64 lose nothing, however far they are from 0. The origin is an
 * integer of 46 bits at most, which is the same number in float64, as two float32 and as an int64.
 */
#include "gpu/body.h"
#include "gpu/index.h"

#include "kernel/loop.h"

/* Where they come from: what stands from PEGEN_PTX_POSITIONS on among an entry's parameters. */
typedef struct source source;
/* Makes `count` values of a coordinate: of a float32, or of one of the other types. */
typedef void of_coordinate(const source *s, ir_value at, bool is_f32, int axis, ir_value *out);
struct source {
  ir *b;
  const spec *spec;
  const ir_value *parameter;
  ir_value batch, token; /* i32 */
  const ir_value *origin; /* [axis] i64; NULL: coordinates are as they are */
  MlirType type;          /* of values: `count` an axis, which `make` makes */
  int count;
  of_coordinate *make;
  const gpu_raw_place *raw; /* coordinates that are loaded, and the origin as two float32 */
  const two_float *narrow_origin;
};

enum { ADDRESS, TYPE, BATCH, TOKEN, AXIS }; /* ORDER PEGEN_PTX_POSITIONS */

enum { MOST_VALUES = 3 * SPEC_MAX_AXES };

/* Distances from an origin that take a third part. */
static const double FAR_WHOLE = 0x1p46, FAR_REAL = 0x1p24;

static ir_value type_is(const source *s, int type) {
  return ir_compare_int(s->b, "eq", s->parameter[TYPE], i64(s->b, type));
}

/* The two halves of a coordinate that is no float32, of an int32 with its sign. */
static void load_halves(const source *s, ir_value at, ir_value *low, ir_value *high) {
  ir *b = s->b;
  ir_value is_i32 = type_is(s, PEGEN_POSITION_I32);
  ir_value step = ir_select(b, is_i32, i64(b, 0), i64(b, 4));
  *low = ir_load(b, b->i32, ir_pointer(b, at), 4);
  ir_value other = ir_load(b, b->i32, ir_pointer(b, add(b, at, step)), 4);
  *high = ir_select(b, is_i32, ir_op2(b, "arith.shrsi", *low, i32(b, 31)), other);
}

static ir_value load_f32(const source *s, ir_value at) { return ir_load(s->b, s->b->f32, ir_pointer(s->b, at), 4); }

/* Where the coordinate of the first axis is: i64. */
static ir_value row_of(const source *s) {
  ir *b = s->b;
  ir_value row = add(b, s->parameter[ADDRESS], mul(b, wide(b, s->batch), s->parameter[BATCH]));
  return add(b, row, mul(b, wide(b, s->token), s->parameter[TOKEN]));
}

static ir_value axis_of(const source *s, ir_value row, int axis) {
  return add(s->b, row, mul(s->b, s->parameter[AXIS], i64(s->b, axis)));
}

/* [axis][count] values of given positions. Behind a float32 there may be no memory, so that the types are two sides of
 * a branch. */
static void load_coordinates(const source *s, ir_value *values) {
  ir *b = s->b;
  int axes = s->spec->n_axes, all = s->count * axes;
  ir_value row = row_of(s), sides[2][MOST_VALUES];
  MlirType types[MOST_VALUES];
  for (int i = 0; i < all; i++) types[i] = s->type;
  ir_choice choice = ir_choose(b, type_is(s, PEGEN_POSITION_F32), all, types);
  for (int side = 0; side < 2; side++) {
    for (int axis = 0; axis < axes; axis++)
      s->make(s, axis_of(s, row, axis), side == 0, axis, sides[side] + (int64_t)s->count * axis);
    if (side == 0) ir_choose_else(b, &choice, all, sides[0]);
  }
  ir_end_choose(b, choice, all, sides[1], values);
}

/* hi and lo. */
static void coordinate(const source *s, ir_value at, bool is_f32, int axis, ir_value *out) {
  ir *b = s->b;
  ir_value low, high;
  two_float x;
  (void)axis;
  if (is_f32) x = two_float_f32(load_f32(s, at));
  else {
    load_halves(s, at, &low, &high);
    ir_value is_f64 = type_is(s, PEGEN_POSITION_F64);
    x = two_float_select(b, is_f64, two_float_from_f64(b, low, high), two_float_from_i64(b, low, high));
  }
  out[0] = x.hi;
  out[1] = x.lo.ptr ? x.lo : ir_float(b, b->f32, 0);
}

/* Row-major coordinates of the built-in grid, the last axis fastest. */
static void grid_coordinates(const source *s, ir_value *values) {
  ir *b = s->b;
  ir_value rest = sub(b, s->token, i32(b, s->spec->skip_tokens));
  for (int axis = s->spec->n_axes - 1; axis >= 0; axis--) {
    ir_value at = axis ? ir_op2(b, "arith.remui", rest, i32(b, s->spec->grid[axis])) : rest;
    values[s->count * axis] = ir_cast(b, "arith.sitofp", at, b->f32);
    for (int i = 1; i < s->count; i++) values[s->count * axis + i] = ir_float(b, b->f32, 0);
    if (axis) rest = ir_op2(b, "arith.divui", rest, i32(b, s->spec->grid[axis]));
  }
}

/* [axis][count] values of given positions, or where there are none the grid's. */
typedef void make_values(const source *s, ir_value *values);
static void given_or_grid(const source *s, make_values *given, make_values *of_grid, ir_value *values) {
  ir *b = s->b;
  int all = s->count * s->spec->n_axes;
  MlirType types[MOST_VALUES];
  ir_value sides[2][MOST_VALUES];
  if (!s->spec->grid[0]) {
    given(s, values);
    return;
  }
  for (int i = 0; i < all; i++) types[i] = s->type;
  ir_choice choice = ir_choose(b, ir_compare_int(b, "eq", s->parameter[ADDRESS], i64(b, 0)), all, types);
  of_grid(s, sides[0]);
  ir_choose_else(b, &choice, all, sides[0]);
  given(s, sides[1]);
  ir_end_choose(b, choice, all, sides[1], values);
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

/* Loads the median of three tokens' coordinates, axis by axis. A coordinate that is not finite counts as the
 * description's own. */
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
  source s = {.b = b,
              .spec = described,
              .parameter = parameter,
              .batch = batch,
              .type = b->f32,
              .count = 2,
              .make = coordinate};
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
    ir_choice choice = ir_choose(b, ir_compare_int(b, "eq", parameter[ADDRESS], i64(b, 0)), 2 * axes, types);
    ir_choose_else(b, &choice, 2 * axes, own);
    load_median(&s, own, given);
    ir_end_choose(b, choice, 2 * axes, given, values);
  }
  for (int axis = 0; axis < axes; axis++) out[axis] = pair_at(values, axis);
}

void gpu_coordinates(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                     two_float *out) {
  const source s = {b, described, parameter, batch, token, .type = b->f32, .count = 2, .make = coordinate};
  ir_value values[MOST_VALUES];
  given_or_grid(&s, load_coordinates, grid_coordinates, values);
  for (int axis = 0; axis < described->n_axes; axis++) out[axis] = pair_at(values, axis);
}

/* ---- from an origin ---- */

static ir_value as_i64(ir *b, ir_value low, ir_value high) {
  ir_value top = ir_op2(b, "arith.shli", ir_cast(b, "arith.extui", high, b->i64), i64(b, 32));
  return ir_op2(b, "arith.ori", top, ir_cast(b, "arith.extui", low, b->i64));
}

static ir_value low_of(ir *b, ir_value x) { return ir_cast(b, "arith.trunci", x, b->i32); }
static ir_value high_of(ir *b, ir_value x) { return low_of(b, ir_op2(b, "arith.shrui", x, i64(b, 32))); }

static ir_value is_far(ir *b, ir_value x, double from) {
  return ir_compare_float(b, "oge", ir_op1(b, "math.absf", x), ir_float(b, ir_type(x), from));
}

static void set_parts(gpu_place *out, two_float x, ir_value third) {
  out->part[0] = x.hi;
  out->part[1] = x.lo;
  out->part[2] = third;
}

/* An integer less the origin: two parts below 2^46, or a multiple of 2^24, of which they have 41 bits, and the rest. A
 * difference that an int64 does not count has lost 2^64, or gained it. */
static void place_of_whole(ir *b, ir_value all, ir_value origin, ir_value real, gpu_place *out) {
  ir_value none = i64(b, 0), far = is_far(b, real, FAR_WHOLE), difference = sub(b, all, origin);
  ir_value signs =
      ir_op2(b, "arith.andi", ir_op2(b, "arith.xori", all, origin), ir_op2(b, "arith.xori", all, difference));
  ir_value is_below = ir_compare_float(b, "olt", real, ir_float(b, b->f64, 0));
  ir_value turn = ir_select(b, is_below, ir_float(b, b->f32, -0x1p64), ir_float(b, b->f32, 0x1p64));
  ir_value lost = ir_select(b, ir_compare_int(b, "slt", signs, none), turn, ir_float(b, b->f32, 0));
  ir_value tail = ir_select(b, far, ir_op2(b, "arith.andi", difference, i64(b, 0xffffff)), none);
  ir_value head = sub(b, difference, tail), low = low_of(b, head), high = high_of(b, head);
  ir_value third = ir_cast(b, "arith.sitofp", tail, b->f32);
  set_parts(out, two_float_add(b, two_float_from_i64(b, low, high), two_float_f32(lost)), third);
}

/* A float64 less the origin: 48 bits, and the last 5, which near the origin are left off. */
static void place_of_real(ir *b, ir_value real, gpu_place *out) {
  ir_value all = ir_cast(b, "arith.bitcast", real, b->i64), far = is_far(b, real, FAR_REAL);
  ir_value mask = ir_select(b, far, i64(b, ~31LL), i64(b, -1));
  ir_value cut = ir_op2(b, "arith.andi", all, mask), low = low_of(b, cut), high = high_of(b, cut);
  ir_value rest = sub(b, real, ir_cast(b, "arith.bitcast", cut, b->f64));
  ir_value third = ir_cast(b, "arith.truncf", rest, b->f32);
  set_parts(out, two_float_from_f64(b, low, high), third);
}

/* Less the origin, before anything is rounded. */
static void subtract(const source *s, ir_value at, ir_value origin, gpu_place *out) {
  ir *b = s->b;
  ir_value low, high;
  gpu_place of_whole, of_real;
  load_halves(s, at, &low, &high);
  ir_value all = as_i64(b, low, high), is_f64 = type_is(s, PEGEN_POSITION_F64);
  ir_value number =
      ir_select(b, is_f64, ir_cast(b, "arith.bitcast", all, b->f64), ir_cast(b, "arith.sitofp", all, b->f64));
  ir_value real = sub(b, number, ir_cast(b, "arith.sitofp", origin, b->f64));
  place_of_whole(b, all, origin, real, &of_whole);
  place_of_real(b, real, &of_real);
  for (int i = 0; i < 3; i++) out->part[i] = ir_select(b, is_f64, of_real.part[i], of_whole.part[i]);
}

static void coordinate_from(const source *s, ir_value at, bool is_f32, int axis, ir_value *out) {
  ir *b = s->b;
  ir_value origin = s->origin[axis], zero = ir_float(b, b->f32, 0);
  gpu_place place;
  if (is_f32) {
    ir_value low = low_of(b, origin), high = high_of(b, origin);
    set_parts(&place, two_float_sub(b, two_float_f32(load_f32(s, at)), two_float_from_i64(b, low, high)), zero);
  } else subtract(s, at, origin, &place);
  ir_value is_finite =
      ir_compare_float(b, "olt", ir_op1(b, "math.absf", place.part[0]), ir_float(b, b->f32, __builtin_inf()));
  out[0] = place.part[0];
  for (int i = 1; i < 3; i++) out[i] = ir_select(b, is_finite, place.part[i], zero);
}

void gpu_places(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                const ir_value *origin, gpu_place *out) {
  const source s = {b, described, parameter, batch, token, origin, b->f32, 3, coordinate_from, NULL, NULL};
  ir_value values[MOST_VALUES];
  given_or_grid(&s, load_coordinates, grid_coordinates, values);
  for (int axis = 0; axis < described->n_axes; axis++)
    for (int i = 0; i < 3; i++) out[axis].part[i] = values[3 * axis + i];
}

/* Where one word holds a coordinate, the word behind it is not read: it is the same one again. */
static ir_value load_rough(const source *s, ir_value at) {
  ir *b = s->b;
  ir_value is_f32 = type_is(s, PEGEN_POSITION_F32), is_i32 = type_is(s, PEGEN_POSITION_I32),
           is_f64 = type_is(s, PEGEN_POSITION_F64), is_one_word = ir_op2(b, "arith.ori", is_f32, is_i32);
  ir_value low = ir_load(b, b->i32, ir_pointer(b, at), 4);
  ir_value step = ir_select(b, is_one_word, i64(b, 0), i64(b, 4));
  ir_value high = ir_load(b, b->i32, ir_pointer(b, add(b, at, step)), 4);
  high = ir_select(b, is_i32, ir_op2(b, "arith.shrsi", low, i32(b, 31)), high);
  ir_value all = as_i64(b, low, high), real = ir_cast(b, "arith.bitcast", all, b->f64),
           of_real = ir_cast(b, "arith.truncf", real, b->f32), of_whole = ir_cast(b, "arith.sitofp", all, b->f32);
  ir_value others = ir_select(b, is_f64, of_real, of_whole);
  return ir_select(b, is_f32, ir_cast(b, "arith.bitcast", low, b->f32), others);
}

static void load_rough_coordinates(const source *s, ir_value *values) {
  ir_value row = row_of(s);
  for (int axis = 0; axis < s->spec->n_axes; axis++) values[axis] = load_rough(s, axis_of(s, row, axis));
}

void gpu_rough_coordinates(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                           ir_value *out) {
  const source s = {b, described, parameter, batch, token, .type = b->f32, .count = 1};
  given_or_grid(&s, load_rough_coordinates, grid_coordinates, out);
}

two_float gpu_place_value(ir *b, const gpu_place *place) {
  two_float first = {.hi = place->part[0], .lo = place->part[1]};
  return two_float_add(b, first, two_float_f32(place->part[2]));
}

/* ---- in two steps ---- */

two_float gpu_narrow_origin(ir *b, ir_value origin) {
  ir_value hi = ir_cast(b, "arith.sitofp", origin, b->f32),
           rest = sub(b, origin, ir_cast(b, "arith.fptosi", hi, b->i64));
  return (two_float){.hi = hi, .lo = ir_cast(b, "arith.sitofp", rest, b->f32)};
}

/* low and high. */
static void load_raw(const source *s, ir_value *values) {
  ir *b = s->b;
  ir_value is_i32 = type_is(s, PEGEN_POSITION_I32),
           is_short = ir_op2(b, "arith.ori", type_is(s, PEGEN_POSITION_F32), is_i32);
  ir_value step = ir_select(b, is_short, i64(b, 0), i64(b, 4)), row = row_of(s);
  for (int axis = 0; axis < s->spec->n_axes; axis++) {
    ir_value at = axis_of(s, row, axis);
    values[2 * axis] = ir_load_here(b, b->i32, ir_pointer(b, at), 4);
    values[2 * axis + 1] = ir_load_here(b, b->i32, ir_pointer(b, add(b, at, step)), 4);
  }
}

static void make_zeros(const source *s, ir_value *values) {
  for (int i = 0; i < s->count * s->spec->n_axes; i++) values[i] = i32(s->b, 0);
}

void gpu_raw_places(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                    gpu_raw_place *out) {
  const source s = {b, described, parameter, batch, token, .type = b->i32, .count = 2};
  ir_value values[MOST_VALUES];
  given_or_grid(&s, load_raw, make_zeros, values);
  for (int axis = 0; axis < described->n_axes; axis++)
    out[axis] = (gpu_raw_place){.low = values[2 * axis], .high = values[2 * axis + 1]};
}

/* The difference of integers or float64; one that an int64 does not count is that of their float64. */
static ir_value narrow_difference(const source *s, const gpu_raw_place *raw, ir_value origin) {
  ir *b = s->b;
  ir_value is_i32 = type_is(s, PEGEN_POSITION_I32), is_f64 = type_is(s, PEGEN_POSITION_F64);
  ir_value high = ir_select(b, is_i32, ir_op2(b, "arith.shrsi", raw->low, i32(b, 31)), raw->high),
           all = as_i64(b, raw->low, high), counted = ir_cast(b, "arith.sitofp", all, b->f64),
           number = ir_select(b, is_f64, ir_cast(b, "arith.bitcast", all, b->f64), counted);
  ir_value real = sub(b, number, ir_cast(b, "arith.sitofp", origin, b->f64)), difference = sub(b, all, origin),
           narrow = ir_cast(b, "arith.truncf", real, b->f32);
  ir_value one = ir_op2(b, "arith.xori", all, origin), other = ir_op2(b, "arith.xori", all, difference);
  ir_value is_lost = ir_compare_int(b, "slt", ir_op2(b, "arith.andi", one, other), i64(b, 0)),
           whole = ir_cast(b, "arith.sitofp", difference, b->f32);
  return ir_select(b, ir_op2(b, "arith.ori", is_f64, is_lost), narrow, whole);
}

static void narrow_given(const source *s, ir_value *out) {
  ir *b = s->b;
  int axes = s->spec->n_axes;
  MlirType types[SPEC_MAX_AXES];
  ir_value others[SPEC_MAX_AXES];
  for (int axis = 0; axis < axes; axis++) types[axis] = b->f32;
  ir_choice choice = ir_choose(b, type_is(s, PEGEN_POSITION_F32), axes, types);
  for (int axis = 0; axis < axes; axis++) {
    ir_value x = ir_cast(b, "arith.bitcast", s->raw[axis].low, b->f32), near = sub(b, x, s->narrow_origin[axis].hi);
    out[axis] = sub(b, near, s->narrow_origin[axis].lo);
  }
  ir_choose_else(b, &choice, axes, out);
  for (int axis = 0; axis < axes; axis++) others[axis] = narrow_difference(s, &s->raw[axis], s->origin[axis]);
  ir_end_choose(b, choice, axes, others, out);
}

void gpu_narrow_places(ir *b, const spec *described, const ir_value *parameter, ir_value token,
                       const gpu_raw_place *raw, const ir_value *origin, const two_float *narrow_origin,
                       ir_value *out) {
  const source s = {b, described, parameter, {NULL}, token, origin, b->f32, 1, NULL, raw, narrow_origin};
  given_or_grid(&s, narrow_given, grid_coordinates, out);
}

/* The origin at a token, and -1 there where it is finite, else 0. */
static void origin_of(const source *s, ir_value at, bool is_f32, int axis, ir_value *out) {
  ir *b = s->b;
  ir_value low, high, real, whole = {NULL};
  (void)axis;
  if (is_f32) real = ir_cast(b, "arith.extf", load_f32(s, at), b->f64);
  else {
    load_halves(s, at, &low, &high);
    ir_value all = as_i64(b, low, high), is_f64 = type_is(s, PEGEN_POSITION_F64);
    ir_value number = ir_cast(b, "arith.sitofp", all, b->f64);
    real = ir_select(b, is_f64, ir_cast(b, "arith.bitcast", all, b->f64), number);
    whole = ir_select(b, is_f64, i64(b, 0), all);
  }
  ir_value size = ir_op1(b, "math.absf", real), fits = ir_compare_float(b, "olt", size, ir_float(b, b->f64, 0x1p62));
  ir_value near = ir_cast(b, "arith.fptosi", ir_select(b, fits, real, ir_float(b, b->f64, 0)), b->i64);
  if (whole.ptr) near = ir_select(b, type_is(s, PEGEN_POSITION_F64), near, whole);
  ir_value mask = ir_select(b, is_far(b, real, FAR_WHOLE), i64(b, ~0x3ffffLL), i64(b, -1));
  out[0] = ir_op2(b, "arith.andi", near, mask);
  ir_value is_finite = ir_compare_float(b, "olt", size, ir_float(b, b->f64, __builtin_inf()));
  out[1] = ir_cast(b, "arith.extsi", is_finite, b->i64);
}

/* The grid's is 0. */
static void make_origin(const source *s, ir_value *values) {
  for (int i = 0; i < s->count * s->spec->n_axes; i++) values[i] = i64(s->b, -(i % 2));
}

ir_value gpu_place_origin(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                          ir_value *origin) {
  const source s = {b, described, parameter, batch, token, .type = b->i64, .count = 2, .make = origin_of};
  ir_value values[MOST_VALUES], all = i64(b, -1);
  given_or_grid(&s, load_coordinates, make_origin, values);
  for (int axis = 0; axis < described->n_axes; axis++) {
    origin[axis] = values[2 * axis];
    all = ir_op2(b, "arith.andi", all, values[2 * axis + 1]);
  }
  return ir_compare_int(b, "ne", all, i64(b, 0));
}
