/* gpu/tile: what a description asks of tiles, where rows lie, and coordinates of a tile's tokens in shared memory; see
 * gpu/attention.h. */
#include "gpu/attention.h"
#include "gpu/index.h"

#include "kernel/launch.h"

enum {
  PLACE_BYTES = 16, /* of a coordinate: its three parts and their sum, read in one access */
  NEAR = 64 /* coordinates below this are float32 to 2^-19 */
};

/* ---- the shape of tiles ---- */

bool attend_has_pairs(const attention_plan *p) { return p->bias || p->matrix || p->score; }

bool attend_has_places(const attention_plan *p) { return !p->columns && p->n_places > p->n_numbers; }

int64_t attend_place_bytes(const attention_plan *p) { return (int64_t)PLACE_BYTES * p->spec->n_axes; }

bool attend_has_columns(const attention_plan *p) { return p->columns && p->columns->n_columns > 0; }

bool attend_has_constant(const attention_plan *p) { return attend_has_columns(p) && p->columns->n_constant > 0; }

ir_value attend_constant_at(attend *t, ir_value query) { return attend_row_at(t, t->constants, query, 1); }

ir_value attend_row_at(attend *t, ir_value memory, ir_value row, int pitch) {
  return ir_offset(t->b, memory, wide(t->b, scaled(t->b, row, 4LL * pitch)));
}

/* ---- where rows lie ---- */

attend_rows attend_rows_of(attend *t, int parameter, ir_value head, int width) {
  ir *b = t->b;
  const ir_value *of = t->parameter + parameter;
  ir_value base = add(b, of[PEGEN_PTX_ROWS_ADDRESS], mul(b, wide(b, t->batch), of[PEGEN_PTX_ROWS_BATCH]));
  return (attend_rows){.base = add(b, base, mul(b, wide(b, head), of[PEGEN_PTX_ROWS_HEAD])),
                       .stride = of[PEGEN_PTX_ROWS_TOKEN],
                       .width = width};
}

/* ---- coordinates ---- */

ir_value attend_first_query(attend *t) {
  ir *b = t->b;
  return sub(b, i32(b, t->p->spec->skip_tokens), sub(b, t->keys, t->tokens));
}

ir_value attend_placed_token(attend *t, int parameter, ir_value token) {
  ir *b = t->b;
  bool of_keys = parameter == PEGEN_PTX_ATTENTION_KEY_POSITIONS;
  token = larger(b, token, i32(b, of_keys ? t->p->spec->skip_tokens : 0));
  if (t->p->spec->skip_tokens && !of_keys) token = larger(b, token, attend_first_query(t));
  return smaller(b, token, sub(b, of_keys ? t->keys : t->tokens, i32(b, 1)));
}

static ir_value place_at(attend *t, ir_value places, ir_value index, int axis) {
  ir *b = t->b;
  ir_value row = ir_offset(b, places, wide(b, scaled(b, index, attend_place_bytes(t->p))));
  return ir_offset_const(b, row, (int64_t)axis * PLACE_BYTES);
}

static ir_value load_four(attend *t, ir_value places, ir_value index, int axis) {
  return ir_load(t->b, ir_vector(t->b, ATTEND_QUAD, t->b->f32), place_at(t, places, index, axis), PLACE_BYTES);
}

static gpu_place load_place(attend *t, ir_value places, ir_value index, int axis) {
  gpu_place place;
  ir_value all = load_four(t, places, index, axis);
  for (int i = 0; i < 3; i++) place.part[i] = ir_extract(t->b, all, i);
  return place;
}

two_float attend_displacement(attend *t, ir_value query, ir_value key, int axis) {
  ir *b = t->b;
  gpu_place from = load_place(t, t->query_places, query, axis), to = load_place(t, t->places, key, axis);
  two_float x = {.hi = to.part[0], .lo = to.part[1]}, y = {.hi = from.part[0], .lo = from.part[1]};
  return two_float_add(b, two_float_sub(b, x, y), two_float_f32(sub(b, to.part[2], from.part[2])));
}

two_float attend_loose_displacement(attend *t, ir_value query, ir_value key, int axis) {
  ir *b = t->b;
  gpu_place from = load_place(t, t->query_places, query, axis), to = load_place(t, t->places, key, axis);
  two_float x = {.hi = to.part[0], .lo = to.part[1]}, y = {.hi = from.part[0], .lo = from.part[1]};
  x = two_float_add_loosely(b, x, two_float_neg(b, y));
  x.lo = add(b, x.lo, sub(b, to.part[2], from.part[2]));
  return x;
}

/* Returns a coordinate as one float32, the fourth number of its place. It serves coordinates that are one float32, or
 * so near the origin that its rounding is 2^-18 at most. */
static ir_value near_place(attend *t, ir_value places, ir_value index, int axis) {
  return ir_extract(t->b, load_four(t, places, index, axis), 3);
}

ir_value attend_narrow_displacement(attend *t, ir_value query, ir_value key, int axis) {
  ir *b = t->b;
  if (t->is_near) {
    ir_value of_query = near_place(t, t->query_places, query, axis), of_key = near_place(t, t->places, key, axis);
    return sub(b, of_key, of_query);
  }
  gpu_place from = load_place(t, t->query_places, query, axis), to = load_place(t, t->places, key, axis);
  ir_value sum = sub(b, to.part[0], from.part[0]);
  for (int i = 1; i < 3; i++) sum = add(b, sum, sub(b, to.part[i], from.part[i]));
  return sum;
}

/* Tells of a coordinate that is no float32 and not near its origin. */
static void tell_far(attend *t, const ir_value *part) {
  ir *b = t->b;
  ir_value zero = ir_float(b, b->f32, 0), exact = ir_compare_float(b, "oeq", part[1], zero);
  exact = ir_op2(b, "arith.andi", exact, ir_compare_float(b, "oeq", part[2], zero));
  ir_value near = ir_compare_float(b, "olt", ir_op1(b, "math.absf", part[0]), ir_float(b, b->f32, NEAR));
  ir_branch far = ir_if(b, ir_compare_int(b, "eq", ir_op2(b, "arith.ori", exact, near), ir_int(b, b->i1, 0)));
  ir_store(b, i32(b, 1), t->far, 4, false);
  ir_end_if(b, far);
}

void attend_copy_places(attend *t, int parameter, ir_value first, int count, ir_value to, const ir_value *origin) {
  ir *b = t->b;
  const spec *s = t->p->spec;
  gpu_place place[SPEC_MAX_AXES];
  ir_branch branch = ir_if(b, less(b, t->thread, i32(b, count)));
  gpu_places(b, s, t->parameter + parameter, t->batch, attend_placed_token(t, parameter, add(b, first, t->thread)),
             origin, place);
  for (int axis = 0; axis < s->n_axes; axis++) {
    const ir_value *part = place[axis].part;
    ir_value rest_of = add(b, part[1], part[2]),
             four[ATTEND_QUAD] = {part[0], part[1], part[2], add(b, part[0], rest_of)};
    if (t->far.ptr) tell_far(t, part);
    ir_store(b, ir_elements(b, ir_vector(b, ATTEND_QUAD, b->f32), ATTEND_QUAD, four), place_at(t, to, t->thread, axis),
             PLACE_BYTES, false);
  }
  ir_end_if(b, branch);
}

/* The token in the middle is mostly somewhere, and the loop over the tile is not entered. */
void attend_find_origin(attend *t, int parameter, ir_value first, int count, ir_value *origin) {
  ir *b = t->b;
  const spec *s = t->p->spec;
  const ir_value *from = t->parameter + parameter;
  ir_value middle = attend_placed_token(t, parameter, add(b, first, i32(b, count / 2))), found = middle;
  ir_value is_somewhere = gpu_place_origin(b, s, from, t->batch, middle, origin);
  ir_loop loop = ir_for_with(b, i64(b, 0), ir_select(b, is_somewhere, i64(b, 0), i64(b, count)), 1, &found, &found);
  ir_value token = attend_placed_token(t, parameter, add(b, first, narrow(b, loop.index))), unused[SPEC_MAX_AXES];
  ir_value next = ir_select(b, gpu_place_origin(b, s, from, t->batch, token, unused), token, found);
  ir_end_for_with(b, loop, 1, &next, &found);
  gpu_place_origin(b, s, from, t->batch, found, origin);
}

/* ---- an entry ---- */

void attend_set_emitters(attend *t, unsigned native) {
  ir *b = t->b;
  const gpu_entry *entry = t->entry;
  t->exprs = thread_emitter_create(b, t->memory, t->p->spec, entry->tile, entry->name);
  t->exprs.operands = t->parameter + PEGEN_PTX_ATTENTION_OPERANDS;
  t->exprs.native = native;
  t->exprs.unit = i32(b, 0);
  t->numbers = (row_thread){.b = b,
                            .memory = t->memory,
                            .t = entry->tile,
                            .dtype = entry->dtype,
                            .native = native,
                            .parameter = t->parameter};
}

void attend_clear_spoilt(attend *t) {
  ir *b = t->b;
  ir_branch one = ir_if(b, ir_compare_int(b, "eq", t->thread, i32(b, 0)));
  ir_store(b, i32(b, 0), t->spoilt, 4, false);
  ir_end_if(b, one);
}
