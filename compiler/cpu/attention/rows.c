/* cpu/attention/rows: rows of tensors as float32 and back; see cpu/attention/rows.h.
 *
 * All of attention is float32 but its rows' way in and out. So a target has one attend_T, which is long, and each
 * number type brings short functions: rows of keys (and of queries, as wide), rows of values, a row of the output.
 */
#include "cpu/attention/rows.h"
#include "cpu/attention/dots.h"
#include "cpu/rows.h"
#include "mlir/arith.h"
#include "mlir/number.h"

/* ---- names ---- */

const char *attention_name(arena *a, const cpu_target *target, const char *what, int dtype) {
  return arena_printf(a, "%s_%s_%s", what, target->suffix, number_name(dtype));
}

static const char *function_name(const attention_emitter *e, const char *what, int dtype) {
  return attention_name(e->memory, e->target, what, dtype);
}

/* What number types share. */
static const char *shared_name(const attention_emitter *e, const char *what) {
  return arena_printf(e->memory, "%s_%s", what, e->target->suffix);
}

/* ---- a number type's functions ---- */

static ir_value scaled(ir *b, ir_value v, ir_value factor) {
  return factor.ptr ? mul(b, v, ir_broadcast(b, ir_type(v), factor)) : v;
}

/* Copies `width` numbers of a type as another, times a factor (f32; null: 1). */
static void emit_row_copy(const attention_emitter *e, ir_value from, int in, ir_value to, int out, int width,
                          ir_value factor) {
  ir *b = e->b;
  int lanes = e->shape.lanes, at = width / lanes * lanes, in_bytes = number_bytes(in), out_bytes = number_bytes(out);
  unsigned native = e->target->native;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, width / lanes));
  ir_value v = emit_load_channels(b, native, in, lanes, nth(b, from, loop.index, lanes * in_bytes));
  ir_value at_lanes = nth(b, to, loop.index, lanes * out_bytes);
  emit_store_channels(b, native, out, scaled(b, v, factor), at_lanes, false);
  ir_end_for(b, loop);
  for (int piece = lanes / 2; at < width; piece /= 2) {
    if (at + piece > width) continue;
    v = emit_load_channels(b, native, in, piece, ir_offset_const(b, from, (int64_t)at * in_bytes));
    ir_value at_piece = ir_offset_const(b, to, (int64_t)at * out_bytes);
    emit_store_channels(b, native, out, scaled(b, v, factor), at_piece, false);
    at += piece;
  }
}

/* name(from, stride, count, to) */
static void emit_read(const attention_emitter *e, const char *name, int dtype, int width) {
  ir *b = e->b;
  ir_value arguments[4];
  ir_open(b, name, "piip", arguments);
  ir_loop rows = ir_for(b, i64(b, 0), arguments[2]);
  ir_value to = nth(b, arguments[3], rows.index, (int64_t)width * 4);
  emit_row_copy(e, ir_offset(b, arguments[0], mul(b, rows.index, arguments[1])), dtype, to, NUMBER_F32, width,
                (ir_value){NULL});
  ir_end_for(b, rows);
  ir_return(b);
}

/* name(from, to) */
static void emit_write(const attention_emitter *e, const char *name, int dtype, int width) {
  ir_value arguments[2];
  ir_open(e->b, name, "pp", arguments);
  emit_row_copy(e, arguments[0], NUMBER_F32, arguments[1], dtype, width, (ir_value){NULL});
  ir_return(e->b);
}

void emit_row_functions(attention_emitter *e, int dtype) {
  const attention_plan *p = e->p;
  emit_read(e, function_name(e, "read", dtype), dtype, p->head_dim);
  if (p->value_dim != p->head_dim) emit_read(e, function_name(e, "read_values", dtype), dtype, p->value_dim);
  emit_write(e, function_name(e, "write", dtype), dtype, p->value_dim);
}

/* Whether rows of keys and values are copied before they are used: where the tile says so, always, never. */
typedef enum copied_rows { COPIED_BY_STAGE, COPIED, NOT_COPIED } copied_rows;

/* name(tile): `shared` with a number type's functions. */
static void emit_entry(attention_emitter *e, const char *name, const char *shared, const char *keys, const char *values,
                       const char *write, copied_rows copied) {
  ir *b = e->b;
  ir_open(b, name, "p", &e->tile);
  ir_value is_copied = copied == COPIED_BY_STAGE ? ATTENTION_TILE(e, stage, b->i64) : i64(b, copied == COPIED);
  ir_value arguments[] = {e->tile, ir_function_address(b, keys), ir_function_address(b, values),
                          ir_function_address(b, write), is_copied};
  ir_call(b, shared, 5, arguments);
  ir_return(b);
}

void emit_attend_rows(attention_emitter *e, int dtype) {
  const attention_plan *p = e->p;
  int given = p->turns_values ? NUMBER_F32 : dtype; /* turned rows are float32, and so are outputs before that */
  const char *keys = function_name(e, "read", given),
             *values = p->value_dim == p->head_dim ? keys : function_name(e, "read_values", given),
             *write = function_name(e, "write", given);
  emit_entry(e, function_name(e, "attend", dtype), shared_name(e, "attend"), keys, values, write,
             given == NUMBER_F32 ? COPIED_BY_STAGE : COPIED);
}

const char *attention_narrow_name(arena *a, const cpu_target *target) {
  return attention_name(a, target, "narrow", NUMBER_BF16);
}

/* narrow_T_bf16(rows, count) */
static void emit_narrow(const attention_emitter *e) {
  ir *b = e->b;
  int width = e->p->head_dim;
  ir_value arguments[2];
  ir_open(b, attention_narrow_name(e->memory, e->target), "pi", arguments);
  ir_loop rows = ir_for(b, i64(b, 0), arguments[1]);
  ir_value from = nth(b, arguments[0], rows.index, (int64_t)width * 4),
           to = nth(b, arguments[0], rows.index, (int64_t)width * 2);
  emit_row_copy(e, from, NUMBER_F32, to, NUMBER_BF16, width, (ir_value){NULL});
  ir_end_for(b, rows);
  ir_return(b);
}

/* A dword is copied as a float32 is. */
void emit_dot_rows(attention_emitter *e) {
  const attention_plan *p = e->p;
  bool alike = p->value_dim == p->head_dim;
  const char *keys = function_name(e, "copy", NUMBER_BF16), *name = emit_attend_dots_name(e->memory, e->target),
             *values = alike ? keys : function_name(e, "copy_values", NUMBER_BF16),
             *write = function_name(e, "write", p->turns_values ? NUMBER_F32 : NUMBER_BF16);
  emit_read(e, keys, NUMBER_F32, p->head_dim / 2);
  if (attention_is_turned(p)) emit_narrow(e);
  if (!alike) emit_read(e, values, NUMBER_F32, p->value_dim / 2);
  emit_entry(e, name, shared_name(e, "attend_pairs"), keys, values, write, COPIED_BY_STAGE);
}

/* ---- gradients ---- */

const char *const attention_gradients[ATTEND_GRADIENTS] = {
    [ATTEND_GRADIENT] = "attend_gradient",
    [ATTEND_GRADIENT_NARROW] = "attend_narrow_gradient",
    [ATTEND_GRADIENT_OF_OPERANDS] = "attend_operands_gradient",
    [ATTEND_GRADIENT_OF_TURNED] = "attend_turned_gradient",
    [ATTEND_GRADIENT_DOTS] = "attend_dots_gradient",
    [ATTEND_GRADIENT_NARROW_DOTS] = "attend_narrow_dots_gradient",
    [ATTEND_GRADIENT_OF_TURNED_DOTS] = "attend_turned_dots_gradient",
    [ATTEND_TANGENT] = "attend_tangent",
    [ATTEND_TANGENT_OF_TURNED] = "attend_turned_tangent"};

static const char *gradient_of(const attention_emitter *e) {
  if (e->is_tangent) return attention_gradients[ATTEND_TANGENT + e->p->of_turned];
  return attention_gradients[e->p->of_operands ? ATTEND_GRADIENT_OF_OPERANDS
                             : e->p->of_turned ? (e->dots ? ATTEND_GRADIENT_OF_TURNED_DOTS : ATTEND_GRADIENT_OF_TURNED)
                             : e->dots         ? ATTEND_GRADIENT_DOTS + e->shape.is_narrow
                             : e->shape.is_narrow ? ATTEND_GRADIENT_NARROW
                                                  : ATTEND_GRADIENT];
}

/* name(sums, to, token, count, factor) */
static void emit_store(const attention_emitter *e, const char *name, int dtype, int width) {
  ir *b = e->b;
  ir_value arguments[5];
  ir_open(b, name, "ppiid", arguments);
  ir_value factor = ir_cast(b, "arith.truncf", arguments[4], b->f32);
  ir_loop rows = ir_for(b, i64(b, 0), arguments[3]);
  ir_value from = nth(b, arguments[0], rows.index, (int64_t)attention_pitch(width) * 4),
           to = ir_offset(b, arguments[1], mul(b, rows.index, arguments[2]));
  emit_row_copy(e, from, NUMBER_F32, to, dtype, width, factor);
  ir_end_for(b, rows);
  ir_return(b);
}

void emit_gradient_rows(attention_emitter *e, int dtype) {
  const attention_plan *p = e->p;
  if (p->value_dim != p->head_dim) emit_write(e, function_name(e, "write_keys", dtype), dtype, p->head_dim);
  emit_store(e, function_name(e, "store_keys", dtype), dtype, p->head_dim);
  emit_store(e, function_name(e, "store_values", dtype), dtype, p->value_dim);
}

/* add_T(from, to): to += from, float32. */
void emit_turned_gradient_rows(attention_emitter *e, unsigned dtypes) {
  ir *b = e->b;
  ir_value arguments[2];
  int width = e->p->head_dim, lanes = e->shape.lanes, at = 0;
  if (!(dtypes & 1u << NUMBER_F32) && !e->p->turns_values)
    emit_read(e, function_name(e, "read", NUMBER_F32), NUMBER_F32, width);
  ir_open(b, shared_name(e, "add"), "pp", arguments);
  for (; at < width; at += lanes) {
    while (lanes > width - at) lanes /= 2;
    MlirType vector = ir_vector(b, lanes, b->f32);
    ir_value to = ir_offset_const(b, arguments[1], (int64_t)at * 4),
             from = ir_load(b, vector, ir_offset_const(b, arguments[0], (int64_t)at * 4), 4);
    ir_store(b, add(b, ir_load(b, vector, to, 4), from), to, 4, false);
  }
  ir_return(b);
}

void emit_gradient_entry(attention_emitter *e, int dtype) {
  bool alike = e->p->value_dim == e->p->head_dim;
  const char *keys = function_name(e, e->dots ? "copy" : "read", dtype),
             *values = alike ? keys : function_name(e, e->dots ? "copy_values" : "read_values", dtype),
             *name = function_name(e, gradient_of(e), dtype),
             *write = function_name(e, alike ? "write" : "write_keys", dtype);
  if (e->p->turns_values && !e->dots) values = function_name(e, "read", NUMBER_F32);
  if (e->p->of_turned) {
    if (!e->dots) keys = function_name(e, "read", NUMBER_F32);
    write = shared_name(e, "add");
  }
  bool is_panel = e->p->of_turned && e->p->turns_values; /* where values lie, too */
  emit_entry(e, name, shared_name(e, gradient_of(e)), keys, values, write,
             is_panel                         ? NOT_COPIED
             : dtype == NUMBER_F32 || e->dots ? COPIED_BY_STAGE
                                              : COPIED);
}

static attention_rows emit_shared_begin(attention_emitter *e, const char *name) {
  ir *b = e->b;
  ir_value arguments[5];
  ir_open(b, name, "ppppi", arguments);
  e->tile = arguments[0];
  return (attention_rows){
      .read_keys = arguments[1], .read_values = arguments[2], .write = arguments[3], .copied = arguments[4]};
}

attention_rows emit_gradient_begin(attention_emitter *e) {
  return emit_shared_begin(e, shared_name(e, gradient_of(e)));
}

/* ---- attend_T ---- */

attention_rows emit_attend_begin(attention_emitter *e) {
  return emit_shared_begin(e, shared_name(e, e->dots ? "attend_pairs" : "attend"));
}

int64_t emit_key_room_bytes(const attention_emitter *e) {
  return (int64_t)e->shape.keys * e->p->head_dim / attention_step(e) * 4;
}

void emit_attend_room(const attention_emitter *e, attention_rows *r) {
  r->key_room = attention_heads_room(e, emit_key_room_bytes(e));
  r->value_room = ir_alloca(e->b, (int64_t)e->shape.keys * e->p->value_dim * 4, CACHE_LINE);
  if (e->dots) r->woven_room = ir_alloca(e->b, (int64_t)e->shape.keys / 2 * e->p->value_dim * 4, CACHE_LINE);
}

/* Rows first, first + 1, ... of a head's tensor. */
typedef struct row_run {
  ir_value base, token; /* its row 0; bytes from one to the next */
  ir_value first, count;
  ir_value read, room; /* what copies them, and where to */
  int width;
  bool of_values;
} row_run;

/* Rows in pages are found by the driver, a page at a time. */
static void emit_copy(const attention_emitter *e, const row_run *run, ir_value from) {
  ir *b = e->b;
  ir_branch paged = ir_if(b, attention_is_given(e, ATTENTION_TILE(e, pages, b->ptr)));
  ir_value of_values = i64(b, run->of_values), width = i64(b, run->width);
  ir_value of_pages[] = {e->tile, run->base, of_values, run->first, run->count, run->read, run->room, width};
  ir_call(b, "pegen_attention_read_pages", 8, of_pages);
  ir_else(b, &paged);
  ir_value arguments[] = {from, run->token, run->count, run->room};
  ir_call_pointer(b, run->read, 4, arguments);
  ir_end_if(b, (ir_branch){paged.outer, {NULL}});
}

/* Rows where they are, or copied to their room. */
static row_view emit_rows(const attention_emitter *e, const attention_rows *r, const row_run *run) {
  ir *b = e->b;
  MlirType types[] = {b->ptr, b->i64};
  ir_value from = ir_offset(b, run->base, mul(b, run->first, run->token)),
           copied[] = {run->room, i64(b, (int64_t)run->width * 4)}, given[] = {from, run->token}, results[2];
  ir_choice choice = ir_choose(b, ir_compare_int(b, "ne", r->copied, e->zero), 2, types);
  emit_copy(e, run, from);
  ir_choose_else(b, &choice, 2, copied);
  ir_end_choose(b, choice, 2, given, results);
  return (row_view){results[0], results[1]};
}

row_view emit_key_rows(const attention_emitter *e, const attention_rows *r, ir_value first, ir_value count) {
  if (attention_is_turned(e->p)) { /* float32, in their panel */
    ir_value stride = ATTENTION_TILE(e, k_token, e->b->i64);
    return (row_view){ir_offset(e->b, ATTENTION_HEAD(e, k), mul(e->b, first, stride)), stride};
  }
  row_run run = {.first = first, .count = count, .read = r->read_keys, .room = r->key_room};
  run.width = e->p->head_dim / attention_step(e);
  run.token = ATTENTION_TILE(e, k_token, e->b->i64);
  run.base = ATTENTION_HEAD(e, k);
  return emit_rows(e, r, &run);
}

row_view emit_value_rows(const attention_emitter *e, const attention_rows *r, ir_value first, ir_value count) {
  if (attention_turns_pairs_and_values(e->p)) {
    ir_value arguments[] = {e->tile, first, count, r->value_room};
    ir_call(e->b, "pegen_attention_values", 4, arguments);
    return (row_view){r->value_room, i64(e->b, (int64_t)e->p->value_dim * 4)};
  }
  row_run run = {.first = first,
                 .count = count,
                 .read = r->read_values,
                 .room = r->value_room,
                 .width = e->p->value_dim / attention_step(e),
                 .of_values = true};
  run.token = ATTENTION_TILE(e, v_token, e->b->i64);
  run.base = ATTENTION_HEAD(e, v);
  return emit_rows(e, r, &run);
}

row_view emit_value_place(const attention_emitter *e, const attention_rows *r, ir_value first) {
  ir *b = e->b;
  row_view room = {r->value_room, i64(b, (int64_t)e->p->value_dim / attention_step(e) * 4)};
  if (attention_turns_pairs_and_values(e->p)) return room;
  ir_value token = ATTENTION_TILE(e, v_token, b->i64), copied = ir_compare_int(b, "ne", r->copied, e->zero);
  ir_value given = ir_offset(b, ATTENTION_HEAD(e, v), mul(b, first, token));
  ir_value at = ir_select(b, copied, room.at, given);
  return (row_view){at, ir_select(b, copied, room.stride, token)};
}
