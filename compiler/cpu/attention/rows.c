/* cpu/attention/rows: rows of tensors as float32 and back; see cpu/attention/rows.h.
 *
 * All of attention is float32 but its rows' way in and out. So a target has one attend_T, which is long, and each
 * number type brings short functions: rows of keys (and of queries, as wide), rows of values, a row of the output.
 */
#include "cpu/attention/rows.h"
#include "cpu/rows.h"
#include "mlir/arith.h"
#include "mlir/number.h"

/* ---- names ---- */

const char *emit_attend_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "attend_%s_%s", target->suffix, number_name(dtype));
}

const char *emit_read_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "read_%s_%s", target->suffix, number_name(dtype));
}

static const char *shared_name(const attention_emitter *e) {
  return arena_printf(e->memory, "attend_%s", e->target->suffix);
}

static const char *function_name(const attention_emitter *e, const char *what, int dtype) {
  return arena_printf(e->memory, "%s_%s_%s", what, e->target->suffix, number_name(dtype));
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
  ir_value v =
      emit_load_channels(b, native, in, lanes, ir_offset(b, from, attention_mul(b, loop.index, lanes * in_bytes)));
  ir_value at_lanes = ir_offset(b, to, attention_mul(b, loop.index, lanes * out_bytes));
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
static const char *emit_read(const attention_emitter *e, const char *name, int dtype, int width) {
  ir *b = e->b;
  MlirType types[] = {b->ptr, b->i64, b->i64, b->ptr};
  ir_value arguments[4];
  ir_function(b, name, true, (MlirType){NULL}, 4, types, arguments);
  ir_loop rows = ir_for(b, i64(b, 0), arguments[2]);
  ir_value to = ir_offset(b, arguments[3], attention_mul(b, rows.index, (int64_t)width * 4));
  emit_row_copy(e, ir_offset(b, arguments[0], ir_op2(b, "arith.muli", rows.index, arguments[1])), dtype, to, NUMBER_F32,
                width, (ir_value){NULL});
  ir_end_for(b, rows);
  ir_return(b);
  return name;
}

/* name(from, to) */
static const char *emit_write(const attention_emitter *e, const char *name, int dtype, int width) {
  MlirType types[] = {e->b->ptr, e->b->ptr};
  ir_value arguments[2];
  ir_function(e->b, name, true, (MlirType){NULL}, 2, types, arguments);
  emit_row_copy(e, arguments[0], NUMBER_F32, arguments[1], dtype, width, (ir_value){NULL});
  ir_return(e->b);
  return name;
}

void emit_attend_rows(attention_emitter *e, int dtype) {
  ir *b = e->b;
  const attention_plan *p = e->p;
  const char *keys = emit_read(e, function_name(e, "read", dtype), dtype, p->head_dim);
  const char *values =
      p->value_dim == p->head_dim ? keys : emit_read(e, function_name(e, "read_values", dtype), dtype, p->value_dim);
  const char *write = emit_write(e, function_name(e, "write", dtype), dtype, p->value_dim);
  ir_function(b, emit_attend_name(e->memory, e->target, dtype), true, (MlirType){NULL}, 1, &b->ptr, &e->tile);
  ir_value copied = dtype == NUMBER_F32 ? ATTENTION_TILE(e, stage, b->i64) : i64(b, 1);
  ir_value arguments[] = {e->tile, ir_function_address(b, keys), ir_function_address(b, values),
                          ir_function_address(b, write), copied};
  ir_call(b, shared_name(e), 5, arguments);
  ir_return(b);
}

/* ---- gradients ---- */

static const char *const gradient_prefix[ATTEND_GRADIENTS] = {[ATTEND_GRADIENT] = "attend_gradient",
                                                              [ATTEND_GRADIENT_NARROW] = "attend_narrow_gradient",
                                                              [ATTEND_GRADIENT_OF_OPERANDS] =
                                                                  "attend_operands_gradient"};

static attend_gradient_kind kind_of(const attention_emitter *e) {
  return e->p->of_operands    ? ATTEND_GRADIENT_OF_OPERANDS
         : e->shape.is_narrow ? ATTEND_GRADIENT_NARROW
                              : ATTEND_GRADIENT;
}

const char *emit_attend_gradient_name(arena *a, const cpu_target *target, int dtype, attend_gradient_kind kind) {
  return arena_printf(a, "%s_%s_%s", gradient_prefix[kind], target->suffix, number_name(dtype));
}

const char *emit_store_name(arena *a, const cpu_target *target, int dtype, bool of_values) {
  return arena_printf(a, "%s_%s_%s", of_values ? "store_values" : "store_keys", target->suffix, number_name(dtype));
}

static const char *shared_gradient_name(const attention_emitter *e) {
  return arena_printf(e->memory, "%s_%s", gradient_prefix[kind_of(e)], e->target->suffix);
}

/* name(sums, to, token, count, factor) */
static void emit_store(const attention_emitter *e, const char *name, int dtype, int width) {
  ir *b = e->b;
  MlirType types[] = {b->ptr, b->ptr, b->i64, b->i64, b->f64};
  ir_value arguments[5];
  ir_function(b, name, true, (MlirType){NULL}, 5, types, arguments);
  ir_value factor = ir_cast(b, "arith.truncf", arguments[4], b->f32);
  ir_loop rows = ir_for(b, i64(b, 0), arguments[3]);
  ir_value from = ir_offset(b, arguments[0], attention_mul(b, rows.index, (int64_t)attention_pitch(width) * 4)),
           to = ir_offset(b, arguments[1], mul(b, rows.index, arguments[2]));
  emit_row_copy(e, from, NUMBER_F32, to, dtype, width, factor);
  ir_end_for(b, rows);
  ir_return(b);
}

void emit_gradient_rows(attention_emitter *e, int dtype) {
  const attention_plan *p = e->p;
  if (p->value_dim != p->head_dim) emit_write(e, function_name(e, "write_keys", dtype), dtype, p->head_dim);
  emit_store(e, emit_store_name(e->memory, e->target, dtype, false), dtype, p->head_dim);
  emit_store(e, emit_store_name(e->memory, e->target, dtype, true), dtype, p->value_dim);
}

void emit_gradient_entry(attention_emitter *e, int dtype) {
  ir *b = e->b;
  bool alike = e->p->value_dim == e->p->head_dim;
  const char *keys = function_name(e, "read", dtype), *values = alike ? keys : function_name(e, "read_values", dtype),
             *write = function_name(e, alike ? "write" : "write_keys", dtype);
  ir_function(b, emit_attend_gradient_name(e->memory, e->target, dtype, kind_of(e)), true, (MlirType){NULL}, 1, &b->ptr,
              &e->tile);
  ir_value copied = dtype == NUMBER_F32 ? ATTENTION_TILE(e, stage, b->i64) : i64(b, 1);
  ir_value arguments[] = {e->tile, ir_function_address(b, keys), ir_function_address(b, values),
                          ir_function_address(b, write), copied};
  ir_call(b, shared_gradient_name(e), 5, arguments);
  ir_return(b);
}

static attention_rows emit_shared_begin(attention_emitter *e, const char *name) {
  ir *b = e->b;
  MlirType types[] = {b->ptr, b->ptr, b->ptr, b->ptr, b->i64};
  ir_value arguments[5];
  ir_function(b, name, true, (MlirType){NULL}, 5, types, arguments);
  e->tile = arguments[0];
  return (attention_rows){
      .read_keys = arguments[1], .read_values = arguments[2], .write = arguments[3], .copied = arguments[4]};
}

attention_rows emit_gradient_begin(attention_emitter *e) { return emit_shared_begin(e, shared_gradient_name(e)); }

/* ---- attend_T ---- */

attention_rows emit_attend_begin(attention_emitter *e) { return emit_shared_begin(e, shared_name(e)); }

void emit_attend_room(const attention_emitter *e, attention_rows *r) {
  r->key_room = attention_heads_room(e, (int64_t)e->shape.keys * e->p->head_dim * 4);
  r->value_room = ir_alloca(e->b, (int64_t)e->shape.keys * e->p->value_dim * 4, CACHE_LINE);
}

/* Rows of a tensor where they are, or copied to `room` by `read`. */
static row_view emit_rows(const attention_emitter *e, const attention_rows *r, ir_value from, ir_value token,
                          ir_value count, int width, ir_value read, ir_value room) {
  ir *b = e->b;
  MlirType types[] = {b->ptr, b->i64};
  ir_value copied[] = {room, i64(b, (int64_t)width * 4)}, given[] = {from, token}, results[2];
  ir_choice choice = ir_choose(b, ir_compare_int(b, "ne", r->copied, e->zero), 2, types);
  ir_value arguments[] = {from, token, count, room};
  ir_call_pointer(b, read, 4, arguments);
  ir_choose_else(b, &choice, 2, copied);
  ir_end_choose(b, choice, 2, given, results);
  return (row_view){results[0], results[1]};
}

row_view emit_key_rows(const attention_emitter *e, const attention_rows *r, ir_value first, ir_value count) {
  ir_value token = ATTENTION_TILE(e, k_token, e->b->i64), base = ATTENTION_HEAD(e, k);
  return emit_rows(e, r, ir_offset(e->b, base, mul(e->b, first, token)), token, count, e->p->head_dim, r->read_keys,
                   r->key_room);
}

row_view emit_value_rows(const attention_emitter *e, const attention_rows *r, ir_value first, ir_value count) {
  ir_value token = ATTENTION_TILE(e, v_token, e->b->i64), base = ATTENTION_HEAD(e, v);
  return emit_rows(e, r, ir_offset(e->b, base, mul(e->b, first, token)), token, count, e->p->value_dim, r->read_values,
                   r->value_room);
}
