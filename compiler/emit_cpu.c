/* emit_cpu: prepare, rotor and encode functions of one target; see emit_cpu.h. */
#include "emit_cpu.h"

#include "emit_expr.h"
#include "emit_rows.h"

#include "../kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64 };

const char *emit_prepare_name(arena *a, const cpu_target *target) { return arena_printf(a, "prepare_%s", target->suffix); }

const char *emit_encode_name(arena *a, const cpu_target *target, int dtype, bool streaming) {
  return arena_printf(a, "encode_%s_%s_%s", target->suffix, dtype_name[dtype], streaming ? "streaming" : "cached");
}

static const char *rotor_name(arena *a, const cpu_target *target) { return arena_printf(a, "rotor_%s", target->suffix); }

int64_t emit_prepared_bytes(const plan *p) {
  int64_t bytes = (int64_t)p->n_prepared * p->lanes * 8;
  return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

void emit_cpu_imports(ir *b) {
  MlirType types[] = {b->ptr, b->i64, b->i64, b->ptr};
  ir_declare(b, "pegen_driver_position", (MlirType){NULL}, 4, types);
}

/* ---- prepare and rotor: blocks in the lanes ---- */

static expr_emitter chunk_emitter(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target, int chunk) {
  expr_emitter e = {.b = b, .p = p, .has_fma = target->has_fma, .begin = t->chunk_begin[chunk], .width = t->chunk_width[chunk]};
  e.memo = arena_array(a, ir_value, expr_pool_count(p->spec->pool));
  return e;
}

static void emit_prepare(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target) {
  MlirType types[] = {b->ptr, b->ptr};
  ir_value arguments[2];
  ir_function(b, emit_prepare_name(a, target), true, (MlirType){NULL}, 2, types, arguments);
  for (int chunk = 0; chunk < t->n_chunks; chunk++) {
    expr_emitter e = chunk_emitter(b, a, p, t, target, chunk);
    e.has_leaves = true;
    e.leaves = arguments[0];
    for (int i = 0; i < p->n_prepared; i++) {
      int64_t at = emit_prepared_offset(p, i, e.begin, p->prepared[i]->is_f32);
      ir_store(b, emit_expr_lanes(&e, p->prepared[i]), ir_offset_const(b, arguments[1], at), 4, false);
    }
  }
  ir_return(b);
}

static void emit_rotor(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target) {
  MlirType types[] = {b->ptr, b->ptr, b->ptr};
  ir_value arguments[3], positions[SPEC_MAX_AXES];
  ir_function(b, rotor_name(a, target), true, (MlirType){NULL}, 3, types, arguments);
  for (int axis = 0; axis < p->spec->n_axes; axis++)
    positions[axis] = ir_load(b, b->f64, ir_offset_const(b, arguments[0], axis * 8), 8);
  expr_emitter *emitters = arena_array(a, expr_emitter, t->n_chunks + 1);
  for (int chunk = 0; chunk < t->n_chunks; chunk++) {
    emitters[chunk] = chunk_emitter(b, a, p, t, target, chunk);
    emitters[chunk].prepared = arguments[1];
    emitters[chunk].positions = positions;
  }
  emit_coefficients(b, p, t, emitters, arguments[2]);
  ir_return(b);
}

/* ---- encode: tokens, heads, rows ---- */

typedef struct encode_emitter {
  ir *b;
  arena *memory;
  const plan *p;
  const cpu_target *target;
  row_emitter rows;
  ir_value loop;                    /* const pegen_loop * */
  ir_value prefetch;
  ir_value positions, coefficients; /* scratch of a token */
} encode_emitter;

static ir_value field(encode_emitter *e, ir_value base, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, base, (int64_t)offset), 8);
}

#define LOOP_I64(e, name) field((e), (e)->loop, offsetof(pegen_loop, name), (e)->b->i64)
#define LOOP_PTR(e, name) field((e), (e)->loop, offsetof(pegen_loop, name), (e)->b->ptr)
#define ROWS_I64(e, rows, name) field((e), (rows), offsetof(pegen_rows, name), (e)->b->i64)

static ir_value add(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.addi", x, y); }
static ir_value sub(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.subi", x, y); }
static ir_value mul(ir *b, ir_value x, ir_value y) { return ir_op2(b, "arith.muli", x, y); }
static ir_value i64(ir *b, int64_t value) { return ir_int(b, b->i64, value); }

/* Row-major coordinates of the built-in grid, the last axis fastest. */
static void emit_grid_position(encode_emitter *e, ir_value token) {
  ir *b = e->b;
  const spec *s = e->p->spec;
  ir_value rest = sub(b, token, i64(b, s->skip_tokens));
  for (int axis = s->n_axes - 1; axis >= 0; axis--) {
    ir_value coordinate = axis ? ir_op2(b, "arith.remui", rest, i64(b, s->grid[axis])) : rest;
    ir_store(b, ir_cast(b, "arith.sitofp", coordinate, b->f64), ir_offset_const(b, e->positions, axis * 8), 8, false);
    if (axis) rest = ir_op2(b, "arith.divui", rest, i64(b, s->grid[axis]));
  }
}

static void emit_position(encode_emitter *e, ir_value token) {
  ir *b = e->b;
  ir_value arguments[] = {e->loop, token, i64(b, e->p->spec->n_axes), e->positions};
  if (e->p->spec->grid[0] == 0) {
    ir_call(b, "pegen_driver_position", 4, arguments);
    return;
  }
  ir_branch branch = ir_if(b, ir_compare_int(b, "eq", LOOP_I64(e, positions), i64(b, 0)));
  emit_grid_position(e, token);
  ir_else(b, &branch);
  ir_call(b, "pegen_driver_position", 4, arguments);
  ir_end_if(b, branch);
}

static void emit_one_row(encode_emitter *e, ir_value in, ir_value out, ir_value in_place, ir_value prefetch) {
  ir *b = e->b;
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", prefetch, i64(b, 0)));
  ir_value ahead = ir_offset(b, in, prefetch);
  int bytes = e->p->spec->head_dim * (e->rows.dtype == DTYPE_F32 ? 4 : 2);
  for (int at = 0; at < bytes; at += CACHE_LINE) ir_prefetch(b, ir_offset_const(b, ahead, at));
  ir_end_if(b, branch);
  emit_row(&e->rows, in, out, in_place);
}

/* Where the rows of one tensor lie: loaded once, before the tokens. */
typedef struct tensor_walk {
  ir_value in, out, in_place, heads;
  ir_value in_stride[3], out_stride[3]; /* bytes: batch, token, head */
} tensor_walk;

static tensor_walk load_tensor(encode_emitter *e, int index) {
  ir *b = e->b;
  ir_value rows = ir_offset_const(b, e->loop, (int64_t)(offsetof(pegen_loop, rows) + (size_t)index * sizeof(pegen_rows)));
  tensor_walk w = {.in = ROWS_I64(e, rows, in), .out = ROWS_I64(e, rows, out), .heads = ROWS_I64(e, rows, heads)};
  w.in_place = ir_compare_int(b, "eq", w.in, w.out);
  w.in_stride[0] = ROWS_I64(e, rows, in_batch);
  w.in_stride[1] = ROWS_I64(e, rows, in_token);
  w.in_stride[2] = ROWS_I64(e, rows, in_head);
  w.out_stride[0] = ROWS_I64(e, rows, out_batch);
  w.out_stride[1] = ROWS_I64(e, rows, out_token);
  w.out_stride[2] = ROWS_I64(e, rows, out_head);
  return w;
}

static ir_value address(ir *b, ir_value base, const ir_value *stride, ir_value batch, ir_value token) {
  return add(b, base, add(b, mul(b, batch, stride[0]), mul(b, token, stride[1])));
}

/* The rows of one token in one batch, q's heads and then k's in one loop: one exit to predict, and
 * the first rows of k are under way before the last of q are done. With `head`, that head of each. */
static void emit_tensors(encode_emitter *e, const tensor_walk *w, ir_value batch, ir_value token, const ir_value *head) {
  ir *b = e->b;
  ir_value in[2], out[2];
  for (int i = 0; i < 2; i++) {
    in[i] = address(b, w[i].in, w[i].in_stride, batch, token);
    out[i] = address(b, w[i].out, w[i].out_stride, batch, token);
  }
  ir_value one = i64(b, 1), first = head ? one : w[0].heads;
  ir_value second = head ? ir_select(b, ir_compare_int(b, "ne", w[1].heads, i64(b, 0)), one, i64(b, 0)) : w[1].heads;
  ir_loop rows = ir_for(b, i64(b, 0), add(b, first, second));
  ir_value is_second = ir_compare_int(b, "sge", rows.index, first);
  ir_value index = head ? *head : sub(b, rows.index, ir_select(b, is_second, first, i64(b, 0)));
  ir_value at[2];
  const ir_value base[2][2] = {{in[0], in[1]}, {out[0], out[1]}};
  const ir_value stride[2][2] = {{w[0].in_stride[2], w[1].in_stride[2]}, {w[0].out_stride[2], w[1].out_stride[2]}};
  for (int side = 0; side < 2; side++)
    at[side] = add(b, ir_select(b, is_second, base[side][1], base[side][0]), mul(b, index, ir_select(b, is_second, stride[side][1], stride[side][0])));
  ir_value in_place = ir_select(b, is_second, w[1].in_place, w[0].in_place);
  emit_one_row(e, ir_pointer(b, at[0]), ir_pointer(b, at[1]), in_place, e->prefetch);
  ir_end_for(b, rows);
}

static void emit_rotor_and_batches(encode_emitter *e, const tensor_walk *w, ir_value token, ir_value prepared, const ir_value *head) {
  ir *b = e->b;
  if (e->rows.t->n_slots > 0) {
    ir_value arguments[] = {e->positions, prepared, e->coefficients};
    ir_call(b, rotor_name(e->memory, e->target), 3, arguments);
    emit_load_slots(&e->rows, e->coefficients);
  }
  ir_loop batches = ir_for(b, LOOP_I64(e, batch_begin), LOOP_I64(e, batch_end));
  emit_tensors(e, w, batches.index, token, head);
  ir_end_for(b, batches);
}

static void emit_encode(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target, int dtype, bool streaming) {
  encode_emitter e = {.b = b, .memory = a, .p = p, .target = target};
  e.rows = (row_emitter){.b = b, .memory = a, .p = p, .t = t, .target = target, .dtype = dtype, .streaming = streaming};
  ir_function(b, emit_encode_name(a, target, dtype, streaming), true, (MlirType){NULL}, 1, &b->ptr, &e.loop);
  e.positions = ir_alloca(b, p->spec->n_axes * 8, 8);
  e.coefficients = ir_alloca(b, (int64_t)(t->n_slots + 1) * t->width * 4, CACHE_LINE);
  e.prefetch = LOOP_I64(&e, prefetch);
  tensor_walk walks[2] = {load_tensor(&e, 0), load_tensor(&e, 1)};
  ir_value prepared = LOOP_PTR(&e, prepared);
  ir_loop tokens = ir_for(b, LOOP_I64(&e, token_begin), LOOP_I64(&e, token_end));
  emit_position(&e, tokens.index);
  if (p->per_head) {
    ir_value head_begin = LOOP_I64(&e, head_begin), stride = LOOP_I64(&e, prepared_stride);
    ir_loop heads = ir_for(b, head_begin, LOOP_I64(&e, head_end));
    ir_value of_head = ir_offset(b, prepared, mul(b, sub(b, heads.index, head_begin), stride));
    emit_rotor_and_batches(&e, walks, tokens.index, of_head, &heads.index);
    ir_end_for(b, heads);
  } else emit_rotor_and_batches(&e, walks, tokens.index, prepared, NULL);
  ir_end_for(b, tokens);
  ir_return(b);
}

void emit_cpu(ir *b, arena *a, const plan *p, const cpu_target *target, unsigned dtypes) {
  plan_tile *t = plan_tile_build(a, p, target->lanes);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  if (p->n_leaves > 0) emit_prepare(b, a, p, t, target);
  emit_rotor(b, a, p, t, target);
  for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
    for (int streaming = 0; streaming < 2; streaming++)
      if (dtypes & 1u << dtype) emit_encode(b, a, p, t, target, dtype, streaming);
  b->target_cpu = b->target_features = NULL;
}
