/* cpu/encode: the order of the work; see cpu/encode.h.
 *
 * A token's coefficients are computed once and used for every head of q and k, in every batch that the
 * driver puts into one call.
 */
#include "cpu/encode.h"

#include "cpu/rows.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64 };

typedef struct encode_emitter {
  ir *b;
  arena *memory;
  const plan *p;
  const cpu_target *target;
  row_emitter rows;
  ir_value loop;                    /* const pegen_loop * */
  prefetch_ahead ahead;
  ir_value positions;               /* scratch of a token: float64 [axes] */
  ir_value coefficients;            /* scratch of a tile: coefficient vectors [tile][slots] */
  int64_t slot_bytes;               /* of one token */
  ir_value q_heads;
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
static void grid_position(ir *b, const spec *s, ir_value token, ir_value out) {
  ir_value rest = sub(b, token, i64(b, s->skip_tokens));
  for (int axis = s->n_axes - 1; axis >= 0; axis--) {
    ir_value coordinate = axis ? ir_op2(b, "arith.remui", rest, i64(b, s->grid[axis])) : rest;
    ir_store(b, ir_cast(b, "arith.sitofp", coordinate, b->f64), ir_offset_const(b, out, axis * 8), 8, false);
    if (axis) rest = ir_op2(b, "arith.divui", rest, i64(b, s->grid[axis]));
  }
}

void emit_token_position(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out) {
  ir_value arguments[] = {loop, token, i64(b, s->n_axes), out};
  if (s->grid[0] == 0) {
    ir_call(b, "pegen_driver_position", 4, arguments);
    return;
  }
  ir_value given = ir_load(b, b->i64, ir_offset_const(b, loop, offsetof(pegen_loop, positions)), 8);
  ir_branch branch = ir_if(b, ir_compare_int(b, "eq", given, i64(b, 0)));
  grid_position(b, s, token, out);
  ir_else(b, &branch);
  ir_call(b, "pegen_driver_position", 4, arguments);
  ir_end_if(b, branch);
}

static void emit_position(encode_emitter *e, ir_value token) {
  emit_token_position(e->b, e->p->spec, e->loop, token, e->positions);
}

/* How a tensor's rows are written; nothing of functions that know one type. */
typedef struct conversion {
  ir_value is_other, gain; /* i1: the function's other type; float32 */
} conversion;

static conversion conversion_of(encode_emitter *e, ir_value rows) {
  ir *b = e->b;
  if (e->rows.out == e->rows.dtype) return (conversion){{NULL}, {NULL}};
  return (conversion){.is_other = ir_compare_int(b, "ne", ROWS_I64(e, rows, converts), i64(b, 0)),
                      .gain = ir_cast(b, "arith.truncf", field(e, rows, offsetof(pegen_rows, gain), b->f64), b->f32)};
}

static void emit_one_row(encode_emitter *e, conversion kind, ir_value in, ir_value out, ir_value in_place) {
  int own = e->rows.dtype, other = e->rows.out;
  emit_prefetch(e->b, e->ahead, in, e->p->spec->head_dim * number_bytes(own));
  if (!kind.is_other.ptr) {
    emit_row(&e->rows, in, out, in_place);
    return;
  }
  ir_branch branch = ir_if(e->b, kind.is_other);
  e->rows.gain = kind.gain;
  emit_row(&e->rows, in, out, in_place);
  ir_else(e->b, &branch);
  e->rows.out = own;
  emit_row(&e->rows, in, out, in_place);
  e->rows.out = other;
  ir_end_if(e->b, branch);
}

/* ---- a token's rows: its coefficients stay in registers over all of them ---- */

static ir_value smaller(ir *b, ir_value x, ir_value y) { return ir_select(b, ir_compare_int(b, "slt", x, y), x, y); }
static ir_value larger(ir *b, ir_value x, ir_value y) { return ir_select(b, ir_compare_int(b, "sgt", x, y), x, y); }

/* Where row 0 of a token lies in one side (0: in, 1: out) of a tensor, and the bytes from head to head. */
static ir_value token_row(encode_emitter *e, ir_value rows, int side, ir_value batch, ir_value token, ir_value *step) {
  ir *b = e->b;
  ir_value base = side ? ROWS_I64(e, rows, out) : ROWS_I64(e, rows, in);
  ir_value of_batch = side ? ROWS_I64(e, rows, out_batch) : ROWS_I64(e, rows, in_batch);
  ir_value of_token = side ? ROWS_I64(e, rows, out_token) : ROWS_I64(e, rows, in_token);
  *step = side ? ROWS_I64(e, rows, out_head) : ROWS_I64(e, rows, in_head);
  return add(b, base, add(b, mul(b, batch, of_batch), mul(b, token, of_token)));
}

static ir_value rows_of_tensor(encode_emitter *e, ir_value tensor) {
  return ir_offset(e->b, ir_offset_const(e->b, e->loop, offsetof(pegen_loop, rows)),
                   mul(e->b, tensor, i64(e->b, sizeof(pegen_rows))));
}

static ir_value is_in_place(encode_emitter *e, ir_value rows) {
  return ir_compare_int(e->b, "eq", ROWS_I64(e, rows, in), ROWS_I64(e, rows, out));
}

/* Rows [begin, end) of a token, q's heads counted first and k's after them. */
static void emit_rows_of_token(encode_emitter *e, ir_value batch, ir_value token, ir_value begin, ir_value end) {
  ir *b = e->b;
  ir_value zero = i64(b, 0), in_step, out_step;
  ir_loop tensors = ir_for(b, zero, i64(b, 2));
  ir_value rows = rows_of_tensor(e, tensors.index);
  ir_value heads = ROWS_I64(e, rows, heads), before = mul(b, tensors.index, e->q_heads);
  ir_value first = larger(b, sub(b, begin, before), zero), last = smaller(b, sub(b, end, before), heads);
  ir_value in = token_row(e, rows, 0, batch, token, &in_step), out = token_row(e, rows, 1, batch, token, &out_step);
  ir_value in_place = is_in_place(e, rows);
  conversion kind = conversion_of(e, rows);
  ir_loop each = ir_for(b, first, last);
  ir_value from = add(b, in, mul(b, each.index, in_step)), to = add(b, out, mul(b, each.index, out_step));
  emit_one_row(e, kind, ir_pointer(b, from), ir_pointer(b, to), in_place);
  ir_end_for(b, each);
  ir_end_for(b, tensors);
}

/* Heads [begin, end) of a token in the first `tensors` tensors, each head with coefficients of its own, which serve q
 * and k at once. */
static void emit_heads_of_token(encode_emitter *e, ir_value batch, ir_value token, ir_value begin, ir_value end,
                                ir_value coefficients, int tensors) {
  ir *b = e->b;
  ir_value in[2], out[2], in_step[2], out_step[2], in_place[2];
  conversion kind[2];
  for (int t = 0; t < tensors; t++) {
    ir_value rows = rows_of_tensor(e, i64(b, t));
    in[t] = token_row(e, rows, 0, batch, token, &in_step[t]);
    out[t] = token_row(e, rows, 1, batch, token, &out_step[t]);
    in_place[t] = is_in_place(e, rows);
    kind[t] = conversion_of(e, rows);
  }
  ir_loop heads = ir_for(b, begin, end);
  emit_load_slots(&e->rows, ir_offset(b, coefficients, mul(b, sub(b, heads.index, begin), i64(b, e->slot_bytes))));
  for (int t = 0; t < tensors; t++)
    emit_one_row(e, kind[t], ir_pointer(b, add(b, in[t], mul(b, heads.index, in_step[t]))),
                 ir_pointer(b, add(b, out[t], mul(b, heads.index, out_step[t]))), in_place[t]);
  ir_end_for(b, heads);
}

/* ---- tokens ---- */

/* A token's coefficients: of row `row` of a table where there is one, else from its position. */
static void emit_token_coefficients(encode_emitter *e, ir_value token, const ir_value *head, ir_value prepared,
                                    ir_value out) {
  ir *b = e->b;
  if (e->rows.t->n_slots == 0) return;
  ir_value table = LOOP_I64(e, table);
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", table, i64(b, 0)));
  if (e->p->n_values > 0) {
    ir_value row = add(b, table, mul(b, token, LOOP_I64(e, table_token)));
    if (head) row = add(b, row, mul(b, *head, LOOP_I64(e, table_head)));
    ir_value arguments[] = {ir_pointer(b, row), out};
    ir_call(b, emit_unfold_name(e->memory, e->target), 2, arguments);
  }
  ir_else(b, &branch);
  if (!head) emit_position(e, token);
  ir_value arguments[] = {e->positions, prepared, out};
  ir_call(b, emit_rotor_name(e->memory, e->target), 3, arguments);
  ir_end_if(b, branch);
}

/* How many steps of `step` cover `whole`. */
static ir_value steps(ir *b, ir_value whole, ir_value step) {
  return ir_op2(b, "arith.divui", add(b, whole, sub(b, step, i64(b, 1))), step);
}

/* Rotors differ from head to head. Those of a tile of tokens are built for as many heads as there is room for; then,
 * batch by batch, the tile's rows are walked in order of memory. */
static void emit_tokens_per_head(encode_emitter *e, ir_value prepared, int most) {
  ir *b = e->b;
  ir_value begin = LOOP_I64(e, token_begin), end = LOOP_I64(e, token_end), zero = i64(b, 0), one = i64(b, 1);
  ir_value head_begin = LOOP_I64(e, head_begin), head_end = LOOP_I64(e, head_end);
  ir_value group = larger(b, smaller(b, sub(b, head_end, head_begin), i64(b, most)), one);
  ir_value tile = larger(b, smaller(b, LOOP_I64(e, tile_tokens), ir_op2(b, "arith.divui", i64(b, most), group)), one);
  ir_value token_bytes = mul(b, group, i64(b, e->slot_bytes));
  ir_value both = ir_compare_int(b, "ne", LOOP_I64(e, rows[1].heads), zero);
  ir_loop groups = ir_for(b, zero, steps(b, sub(b, head_end, head_begin), group));
  ir_value first_head = add(b, head_begin, mul(b, groups.index, group));
  ir_value last_head = smaller(b, add(b, first_head, group), head_end);
  ir_loop tiles = ir_for(b, zero, steps(b, sub(b, end, begin), tile));
  ir_value first = add(b, begin, mul(b, tiles.index, tile)), last = smaller(b, add(b, first, tile), end);

  ir_loop rotors = ir_for(b, first, last);
  ir_branch untabled = ir_if(b, ir_compare_int(b, "eq", LOOP_I64(e, table), zero));
  emit_position(e, rotors.index);
  ir_end_if(b, untabled);
  ir_value of_token = ir_offset(b, e->coefficients, mul(b, sub(b, rotors.index, first), token_bytes));
  ir_loop heads = ir_for(b, first_head, last_head);
  ir_value of_head = ir_offset(b, prepared, mul(b, sub(b, heads.index, head_begin), LOOP_I64(e, prepared_stride)));
  emit_token_coefficients(e, rotors.index, &heads.index, of_head,
                          ir_offset(b, of_token, mul(b, sub(b, heads.index, first_head), i64(b, e->slot_bytes))));
  ir_end_for(b, heads);
  ir_end_for(b, rotors);

  ir_loop batches = ir_for(b, LOOP_I64(e, batch_begin), LOOP_I64(e, batch_end));
  ir_loop tokens = ir_for(b, first, last);
  ir_value coefficients = ir_offset(b, e->coefficients, mul(b, sub(b, tokens.index, first), token_bytes));
  ir_branch branch = ir_if(b, both);
  emit_heads_of_token(e, batches.index, tokens.index, first_head, last_head, coefficients, 2);
  ir_else(b, &branch);
  emit_heads_of_token(e, batches.index, tokens.index, first_head, last_head, coefficients, 1);
  ir_end_if(b, branch);
  ir_end_for(b, tokens);
  ir_end_for(b, batches);
  ir_end_for(b, tiles);
  ir_end_for(b, groups);
}

/* All heads share a token's rotor. The rotors of a tile of tokens are built; then, batch by batch, each
 * group of rows (heads of q and k) is walked over the tile. The driver chooses the sizes: a tile of one token and all
 * rows in one group stream [B,N,H,D] memory; where a head's tokens are neighbours, a few heads at a time
 * over a long tile keep the streams few and long. */
static void emit_tokens_shared(encode_emitter *e, ir_value prepared, int most) {
  ir *b = e->b;
  ir_value begin = LOOP_I64(e, token_begin), end = LOOP_I64(e, token_end), zero = i64(b, 0);
  ir_value tile = smaller(b, LOOP_I64(e, tile_tokens), i64(b, most)), group = LOOP_I64(e, group_rows);
  ir_value all = add(b, LOOP_I64(e, rows[0].heads), LOOP_I64(e, rows[1].heads));
  ir_value groups = steps(b, all, group);
  ir_loop tiles = ir_for(b, zero, steps(b, sub(b, end, begin), tile));
  ir_value first = add(b, begin, mul(b, tiles.index, tile)), last = smaller(b, add(b, first, tile), end);
  ir_loop rotors = ir_for(b, first, last);
  emit_token_coefficients(e, rotors.index, NULL, prepared,
                          ir_offset(b, e->coefficients, mul(b, sub(b, rotors.index, first), i64(b, e->slot_bytes))));
  ir_end_for(b, rotors);
  ir_loop batches = ir_for(b, LOOP_I64(e, batch_begin), LOOP_I64(e, batch_end));
  ir_loop parts = ir_for(b, zero, groups);
  ir_value row = mul(b, parts.index, group), row_end = smaller(b, add(b, row, group), all);
  ir_loop tokens = ir_for(b, first, last);
  emit_load_slots(&e->rows, ir_offset(b, e->coefficients, mul(b, sub(b, tokens.index, first), i64(b, e->slot_bytes))));
  emit_rows_of_token(e, batches.index, tokens.index, row, row_end);
  ir_end_for(b, tokens);
  ir_end_for(b, parts);
  ir_end_for(b, batches);
  ir_end_for(b, tiles);
}

/* Tokens, or heads of tokens, whose coefficients there is room for on the stack (pegen/pegen.h says how much a call
 * needs; rotors that differ from head to head stand beside what is prepared for them). */
static int most_rotors(int64_t slot_bytes, bool per_head) {
  enum { TILE_BYTES = 96 * 1024, TILE_BYTES_PER_HEAD = 64 * 1024, MOST = 128 };
  int64_t count = slot_bytes ? (per_head ? TILE_BYTES_PER_HEAD : TILE_BYTES) / slot_bytes : MOST;
  return count < 1 ? 1 : count > MOST ? MOST : (int)count;
}

void emit_encode(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target, int dtype, int out,
                 bool streaming) {
  encode_emitter e = {.b = b, .memory = a, .p = p, .target = target};
  e.rows = (row_emitter){
      .b = b, .memory = a, .p = p, .t = t, .target = target, .dtype = dtype, .out = out, .streaming = streaming};
  const char *name =
      out == dtype ? emit_encode_name(a, target, dtype, streaming) : emit_converting_name(a, target, dtype, out);
  e.slot_bytes = (int64_t)t->n_slots * t->width * 4;
  int most = most_rotors(e.slot_bytes, p->per_head);
  ir_function(b, name, true, (MlirType){NULL}, 1, &b->ptr, &e.loop);
  e.positions = ir_alloca(b, p->spec->n_axes * 8, 8);
  e.coefficients = ir_alloca(b, most * e.slot_bytes + CACHE_LINE, CACHE_LINE);
  e.ahead = emit_load_ahead(b, e.loop);
  e.q_heads = LOOP_I64(&e, rows[0].heads);
  ir_value prepared = LOOP_PTR(&e, prepared);
  if (p->per_head) emit_tokens_per_head(&e, prepared, most);
  else emit_tokens_shared(&e, prepared, most);
  ir_return(b);
}
