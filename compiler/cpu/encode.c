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

static void emit_one_row(encode_emitter *e, ir_value in, ir_value out, ir_value in_place) {
  emit_prefetch(e->b, e->ahead, in, e->p->spec->head_dim * number_bytes(e->rows.dtype));
  emit_row(&e->rows, in, out, in_place);
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

/* Rows [begin, end) of a token, q's heads counted first and k's after them; with `head`, that head of each. */
static void emit_rows_of_token(encode_emitter *e, ir_value batch, ir_value token, ir_value begin, ir_value end,
                               const ir_value *head) {
  ir *b = e->b;
  ir_value zero = i64(b, 0), in_step, out_step;
  ir_loop tensors = ir_for(b, zero, i64(b, 2));
  ir_value rows = ir_offset(b, ir_offset_const(b, e->loop, offsetof(pegen_loop, rows)),
                            mul(b, tensors.index, i64(b, sizeof(pegen_rows))));
  ir_value heads = ROWS_I64(e, rows, heads), before = mul(b, tensors.index, e->q_heads);
  ir_value first = head ? *head : larger(b, sub(b, begin, before), zero);
  ir_value last = smaller(b, head ? add(b, *head, i64(b, 1)) : sub(b, end, before), heads);
  ir_value in = token_row(e, rows, 0, batch, token, &in_step), out = token_row(e, rows, 1, batch, token, &out_step);
  ir_value in_place = ir_compare_int(b, "eq", ROWS_I64(e, rows, in), ROWS_I64(e, rows, out));
  ir_loop each = ir_for(b, first, last);
  ir_value from = add(b, in, mul(b, each.index, in_step)), to = add(b, out, mul(b, each.index, out_step));
  emit_one_row(e, ir_pointer(b, from), ir_pointer(b, to), in_place);
  ir_end_for(b, each);
  ir_end_for(b, tensors);
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

/* Rotors differ from head to head: one for each token and head, reused over batches, q and k. */
static void emit_tokens_per_head(encode_emitter *e, ir_value prepared) {
  ir *b = e->b;
  ir_loop tokens = ir_for(b, LOOP_I64(e, token_begin), LOOP_I64(e, token_end));
  ir_branch untabled = ir_if(b, ir_compare_int(b, "eq", LOOP_I64(e, table), i64(b, 0)));
  emit_position(e, tokens.index);
  ir_end_if(b, untabled);
  ir_value head_begin = LOOP_I64(e, head_begin), stride = LOOP_I64(e, prepared_stride);
  ir_loop heads = ir_for(b, head_begin, LOOP_I64(e, head_end));
  ir_value of_head = ir_offset(b, prepared, mul(b, sub(b, heads.index, head_begin), stride));
  emit_token_coefficients(e, tokens.index, &heads.index, of_head, e->coefficients);
  emit_load_slots(&e->rows, e->coefficients);
  ir_loop batches = ir_for(b, LOOP_I64(e, batch_begin), LOOP_I64(e, batch_end));
  emit_rows_of_token(e, batches.index, tokens.index, heads.index, heads.index, &heads.index);
  ir_end_for(b, batches);
  ir_end_for(b, heads);
  ir_end_for(b, tokens);
}

/* How many steps of `step` cover `whole`. */
static ir_value steps(ir *b, ir_value whole, ir_value step) {
  return ir_op2(b, "arith.divui", add(b, whole, sub(b, step, i64(b, 1))), step);
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
  emit_rows_of_token(e, batches.index, tokens.index, row, row_end, NULL);
  ir_end_for(b, tokens);
  ir_end_for(b, parts);
  ir_end_for(b, batches);
  ir_end_for(b, tiles);
}

/* Tokens whose coefficients there is room for, on the stack (cli/pegen.h says how much a call needs). */
static int most_tokens(int64_t slot_bytes) {
  enum { TILE_BYTES = 96 * 1024, MOST = 128 };
  int64_t tokens = slot_bytes ? TILE_BYTES / slot_bytes : MOST;
  return tokens < 1 ? 1 : tokens > MOST ? MOST : (int)tokens;
}

void emit_encode(ir *b, arena *a, const plan *p, const plan_tile *t, const cpu_target *target, int dtype,
                 bool streaming) {
  encode_emitter e = {.b = b, .memory = a, .p = p, .target = target};
  e.rows = (row_emitter){.b = b, .memory = a, .p = p, .t = t, .target = target, .dtype = dtype, .streaming = streaming};
  e.slot_bytes = (int64_t)t->n_slots * t->width * 4;
  int most = p->per_head ? 1 : most_tokens(e.slot_bytes);
  ir_function(b, emit_encode_name(a, target, dtype, streaming), true, (MlirType){NULL}, 1, &b->ptr, &e.loop);
  e.positions = ir_alloca(b, p->spec->n_axes * 8, 8);
  e.coefficients = ir_alloca(b, most * e.slot_bytes + CACHE_LINE, CACHE_LINE);
  e.ahead = emit_load_ahead(b, e.loop);
  e.q_heads = LOOP_I64(&e, rows[0].heads);
  ir_value prepared = LOOP_PTR(&e, prepared);
  if (p->per_head) emit_tokens_per_head(&e, prepared);
  else emit_tokens_shared(&e, prepared, most);
  ir_return(b);
}
