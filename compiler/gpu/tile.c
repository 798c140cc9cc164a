/* gpu/tile: rows of queries, keys and values as float32 in shared memory, and rows of the output back; see
 * gpu/attention.h.
 *
 * Rows move in pieces of 16 bytes, neighbours side by side, or one channel at a time where rows lie anyhow. A row's
 * pitch is 4 words more than a multiple of the 32 banks, so that 8 threads that read 16 bytes of 8 rows below one
 * another, or of one row side by side, meet every bank once.
 */
#include "gpu/attention.h"
#include "gpu/index.h"

#include "kernel/launch.h"

enum {
  BANKS = 32,
  PLACE_BYTES = 16, /* of a coordinate: its three parts and their sum, read in one access */
  NEAR = 64 /* coordinates below this are float32 to 2^-19 */
};

/* ---- the shape of tiles ---- */

static int whole_quads(int width) { return (width + ATTEND_QUAD - 1) / ATTEND_QUAD * ATTEND_QUAD; }

bool attend_has_pairs(const attention_plan *p) { return p->bias || p->matrix || p->score; }

bool attend_has_places(const attention_plan *p) { return !p->columns && p->n_places > p->n_numbers; }

int64_t attend_place_bytes(const attention_plan *p) { return (int64_t)PLACE_BYTES * p->spec->n_axes; }

bool attend_has_columns(const attention_plan *p) { return p->columns && p->columns->n_columns > 0; }

bool attend_columns_fit(arena *a, const attention_plan *p, attend_shape *s, int64_t own, int64_t room) {
  widen_tables tables = widen_tables_make(a, p->columns, NULL);
  s->token_lanes = weight_lanes_of(p->columns, &tables, 0, own);
  if (!s->token_lanes) s->token_lanes = weight_lanes_of(p->columns, &tables, 0, room);
  if (!s->token_lanes) return false;
  s->scratch = (int64_t)weight_token_bytes(p->columns, &tables, s->token_lanes, 0) * (PEGEN_PTX_BLOCK / s->token_lanes);
  return true;
}

bool attend_has_constant(const attention_plan *p) { return attend_has_columns(p) && p->columns->n_constant > 0; }

void attend_set_columns(const attention_plan *p, attend_shape *s) {
  s->columns_at = s->width = whole_quads(p->head_dim);
  if (attend_has_columns(p)) s->width += whole_quads(p->columns->n_columns);
}

static ir_value declare(attend *t, const char *what, int64_t bytes) {
  const char *name = arena_printf(t->memory, "%s_%s", t->entry->name, what);
  ir_shared(t->b, name, bytes);
  return ir_shared_address(t->b, name);
}

ir_value attend_constant_at(attend *t, ir_value query) { return attend_row_at(t, t->constants, query, 1); }

void attend_declare_numbers(attend *t, int queries, int keys) {
  int64_t of_queries = attend_number_bytes(t->p, false, queries), of_keys = attend_number_bytes(t->p, true, keys);
  if (of_queries) t->query_numbers = declare(t, "query_numbers", of_queries);
  if (of_keys) t->key_numbers = declare(t, "key_numbers", of_keys);
}

ir_value attend_row_at(attend *t, ir_value memory, ir_value row, int pitch) {
  return ir_offset(t->b, memory, wide(t->b, scaled(t->b, row, 4LL * pitch)));
}

/* ---- pieces of rows ---- */

attend_rows attend_rows_of(attend *t, int parameter, ir_value head, int width) {
  ir *b = t->b;
  const ir_value *of = t->parameter + parameter;
  ir_value base = add(b, of[PEGEN_PTX_ROWS_ADDRESS], mul(b, wide(b, t->batch), of[PEGEN_PTX_ROWS_BATCH]));
  return (attend_rows){.base = add(b, base, mul(b, wide(b, head), of[PEGEN_PTX_ROWS_HEAD])),
                       .stride = of[PEGEN_PTX_ROWS_TOKEN],
                       .width = width};
}

static bool is_whole(const attend *t) { return t->entry->access == THREAD_PIECE; }
static int lanes_of(const attend *t) { return t->entry->tile->lanes; }

/* Of a row; a row that is moved channel by channel ends in zeros up to a multiple of 4, which products may read. */
static int pieces_of(const attend *t, int width) { return is_whole(t) ? width / lanes_of(t) : whole_quads(width); }

static MlirType piece_type(const attend *t) {
  ir *b = t->b;
  bool f32 = t->entry->tile->element == 4;
  return is_whole(t) ? ir_vector(b, 4, f32 ? b->f32 : b->i32) : f32 ? b->f32 : b->i16;
}

/* Piece `index` of rows from `first` on. */
static ir_value load_piece(attend *t, const attend_rows *from, ir_value first, ir_value end, ir_value index) {
  ir *b = t->b;
  int pieces = pieces_of(t, from->width);
  ir_value row = add(b, first, ir_op2(b, "arith.divui", index, i32(b, pieces))),
           piece = ir_op2(b, "arith.remui", index, i32(b, pieces));
  row = smaller(b, row, sub(b, end, i32(b, 1)));
  if (!is_whole(t)) piece = smaller(b, piece, i32(b, from->width - 1));
  ir_value at = add(b, from->base, mul(b, wide(b, row), from->stride));
  return ir_load(b, piece_type(t), ir_pointer(b, add(b, at, wide(b, scaled(b, piece, t->entry->access)))),
                 t->entry->access);
}

/* 0 times what is not finite is no number. */
void attend_watch(attend *t, int count, const ir_value *x) {
  ir *b = t->b;
  ir_value zero = ir_float(b, b->f32, 0), sum = zero;
  for (int i = 0; i < count; i++) sum = ir_fma(b, x[i], zero, sum);
  ir_branch found = ir_if(b, ir_compare_float(b, "une", sum, zero));
  ir_store(b, i32(b, 1), t->spoilt, 4, false);
  ir_end_if(b, found);
}

static void store_piece(attend *t, const attend_rows *from, ir_value raw, ir_value index, ir_value to, int pitch,
                        ir_value factor, bool watched) {
  ir *b = t->b;
  int pieces = pieces_of(t, from->width), lanes = lanes_of(t);
  ir_value row = ir_op2(b, "arith.divui", index, i32(b, pieces)),
           piece = ir_op2(b, "arith.remui", index, i32(b, pieces)), x[8];
  row_place place = {.raw = &raw};
  emit_row_unpack(&t->numbers, &place, x);
  if (watched) attend_watch(t, lanes, x);
  for (int i = 0; factor.ptr && i < lanes; i++) x[i] = mul(b, x[i], factor);
  if (!is_whole(t) && from->width % ATTEND_QUAD)
    x[0] = ir_select(b, less(b, piece, i32(b, from->width)), x[0], ir_float(b, b->f32, 0));
  ir_value at = ir_offset(b, to, wide(b, add(b, scaled(b, row, 4LL * pitch), scaled(b, piece, 4LL * lanes))));
  if (lanes == 1) ir_store(b, x[0], at, 4, false);
  for (int i = 0; i + ATTEND_QUAD <= lanes; i += ATTEND_QUAD)
    ir_store(b, ir_elements(b, ir_vector(b, ATTEND_QUAD, b->f32), ATTEND_QUAD, x + i), ir_offset_const(b, at, 4LL * i),
             16, false);
}

void attend_copy(attend *t, const attend_rows *from, ir_value first, ir_value end, int count, ir_value to, int pitch,
                 ir_value factor, bool watched) {
  ir *b = t->b;
  int all = count * pieces_of(t, from->width), steps = (all + PEGEN_PTX_BLOCK - 1) / PEGEN_PTX_BLOCK;
  ir_branch branch;
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, steps));
  ir_value index = add(b, t->thread, scaled(b, ir_cast(b, "arith.trunci", loop.index, b->i32), PEGEN_PTX_BLOCK));
  if (all % PEGEN_PTX_BLOCK) branch = ir_if(b, less(b, index, i32(b, all)));
  store_piece(t, from, load_piece(t, from, first, end, index), index, to, pitch, factor, watched);
  if (all % PEGEN_PTX_BLOCK) ir_end_if(b, branch);
  ir_end_for(b, loop);
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

two_float attend_coordinate(attend *t, ir_value places, ir_value index, int axis) {
  gpu_place place = load_place(t, places, index, axis);
  return gpu_place_value(t->b, &place);
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

/* Of coordinates that are one float32, or so near the origin that its rounding is 2^-18 at most, the fourth number. */
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

/* ---- the output ---- */

static void store_channels(attend *t, ir_value values, ir_value at, ir_value channel, int width) {
  ir *b = t->b;
  for (int i = 0; i < ATTEND_QUAD; i++) {
    ir_branch branch = ir_if(b, less(b, add(b, channel, i32(b, i)), i32(b, width)));
    ir_store(b, emit_row_number(&t->numbers, ir_extract(b, values, i)),
             ir_offset_const(b, at, (int64_t)i * t->entry->tile->element), t->entry->tile->element, false);
    ir_end_if(b, branch);
  }
}

void attend_store_quad(attend *t, const attend_rows *to, ir_value token, int quad, ir_value values) {
  ir *b = t->b;
  int element = t->entry->tile->element;
  ir_value channel = add(b, scaled(b, t->lane, ATTEND_QUAD), i32(b, quad * BANKS)), numbers[ATTEND_QUAD];
  ir_value row = add(b, to->base, mul(b, wide(b, token), to->stride));
  ir_value at = ir_pointer(b, add(b, row, wide(b, scaled(b, channel, element))));
  if (!is_whole(t)) {
    store_channels(t, values, at, channel, to->width);
    return;
  }
  if (element == 2) {
    for (int i = 0; i < ATTEND_QUAD; i++) numbers[i] = emit_row_number(&t->numbers, ir_extract(b, values, i));
    values = ir_elements(b, ir_vector(b, ATTEND_QUAD, b->i16), ATTEND_QUAD, numbers);
  }
  bool some = (quad + 1) * BANKS > to->width;
  ir_branch branch;
  if (some) branch = ir_if(b, less(b, channel, i32(b, to->width)));
  ir_store(b, values, at, ATTEND_QUAD * element, false);
  if (some) ir_end_if(b, branch);
}
