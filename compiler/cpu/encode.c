/* cpu/encode: emits the ops of a program in the order of its loops; see cpu/encode.h.
 *
 * A token's coefficients are computed once, lie in a tile's scratch, and are held in registers while rows are walked:
 * every head of q and k, in every batch that the driver puts into one call.
 */
#include "cpu/encode.h"

#include "base/diag.h"
#include "cpu/gain.h"
#include "cpu/rows.h"
#include "mlir/arith.h"

#include "kernel/loop.h"

#include <limits.h>
#include <stddef.h>

enum { CACHE_LINE = 64 };

/* From one index to another. */
typedef struct run {
  ir_value begin, end;
} run;

/* How a tensor's rows are written; nothing of functions that know one type. */
typedef struct conversion {
  ir_value is_other, gain; /* i1: the function's other type; float32 */
} conversion;

/* Where row 0 of a token lies in a tensor, and the bytes from head to head. in_place: i1. */
typedef struct token_rows {
  ir_value in, out, in_step, out_step, in_place;
  ir_value kept, kept_step; /* where gradients are computed: what encode wrote or read */
  ir_value first, last; /* heads of the group, where heads share their rotors */
  conversion kind;
} token_rows;

typedef struct encode_emitter {
  ir *b;
  arena *memory;
  const plan *p;
  const program *program;
  const cpu_target *target;
  row_emitter rows;
  ir_value loop;                    /* const pegen_loop * */
  prefetch_ahead ahead;
  ir_value positions;               /* scratch of a token: float64 [axes] */
  ir_value coefficients; /* scratch of a tile: coefficient vectors [tile][heads, where they differ][slots] */
  int64_t slot_bytes; /* of one token, or head of it */
  int most; /* of them that the scratch has room for */
  ir_value q_heads, prepared;
  /* what loops walk, and in what steps */
  run tokens, heads;
  ir_value tile_tokens, group_rows, all_rows, groups, run_heads, token_bytes, has_k;
  /* where the open loops are */
  run tile, group, run; /* of tokens; of rows, q's heads counted first and k's after them; of heads */
  ir_value batch, token, head; /* head: where rotors differ, else null */
  ir_value of_token; /* the token's part of the scratch, where heads differ */
  token_rows tensor[2]; /* the first: of the tensor at hand, where tensors are walked by a loop */
  int n_tensors;
  ir_value row_in, row_out, row_kept, in_place; /* pointers; i1 */
  conversion kind;
  const gradient_code *gradient; /* NULL: rows alone */
  gradient_values gained; /* of the call */
  ir_value *held;         /* sums of the torques of the rows at hand that are in registers; NULL: in memory */
} encode_emitter;

static ir_value field(encode_emitter *e, ir_value base, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, base, (int64_t)offset), 8);
}

#define LOOP_I64(e, name) field((e), (e)->loop, offsetof(pegen_loop, name), (e)->b->i64)
#define LOOP_PTR(e, name) field((e), (e)->loop, offsetof(pegen_loop, name), (e)->b->ptr)
#define ROWS_I64(e, rows, name) field((e), (rows), offsetof(pegen_rows, name), (e)->b->i64)

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

void emit_token_place(ir *b, const spec *s, ir_value loop, ir_value token, ir_value out) {
  emit_token_position(b, s, loop, token, out);
  if (!spec_has_sides(s)) return;
  ir_value side = ir_load(b, b->f64, ir_offset_const(b, loop, offsetof(pegen_loop, side)), 8);
  ir_store(b, side, ir_offset_const(b, out, s->n_axes * 8), 8, false);
}

int emit_place_numbers(const spec *s) { return s->n_axes + spec_has_sides(s); }

/* ---- what is computed of a token ---- */

/* Where coefficients are in the tile's scratch: the token's, or the head's of it. */
static ir_value coefficients_at(encode_emitter *e) {
  ir *b = e->b;
  if (e->head.ptr) return ir_offset(b, e->of_token, mul(b, sub(b, e->head, e->run.begin), i64(b, e->slot_bytes)));
  return ir_offset(b, e->coefficients, mul(b, sub(b, e->token, e->tile.begin), i64(b, e->slot_bytes)));
}

static void emit_position(encode_emitter *e) { emit_token_place(e->b, e->p->spec, e->loop, e->token, e->positions); }

/* A token's coefficients: of its row of a table where there is one, else from its position. */
static void emit_token_coefficients(encode_emitter *e, ir_value prepared, ir_value out) {
  ir *b = e->b;
  if (e->rows.t->n_slots == 0) return;
  ir_value table = LOOP_I64(e, table);
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", table, i64(b, 0)));
  if (e->p->n_values > 0) {
    ir_value row = add(b, table, mul(b, e->token, LOOP_I64(e, table_token)));
    if (e->head.ptr) row = add(b, row, mul(b, e->head, LOOP_I64(e, table_head)));
    ir_value arguments[] = {ir_pointer(b, row), out};
    ir_call_pointer(b, LOOP_PTR(e, unfold), 2, arguments);
  }
  ir_else(b, &branch);
  if (!e->head.ptr) emit_position(e);
  ir_value arguments[] = {e->positions, prepared, out};
  ir_call_pointer(b, LOOP_PTR(e, rotor), 3, arguments);
  ir_end_if(b, branch);
}

/* ---- gradients ---- */

#define KEPT_I64(e, kept, name) field((e), (kept), offsetof(pegen_input_rows, name), (e)->b->i64)

/* Where torques of the token, or of the head of it, are summed: behind its coefficients. */
static ir_value torques_at(encode_emitter *e) {
  return ir_offset_const(e->b, coefficients_at(e), (int64_t)e->rows.t->n_slots * e->rows.t->width * 4);
}

/* Begins the sums of a tile's tokens. */
static void clear_tile(encode_emitter *e, ir_value token_bytes) {
  ir *b = e->b;
  int width = e->rows.t->width;
  ir_value bytes = mul(b, sub(b, e->tile.end, e->tile.begin), token_bytes);
  ir_loop loop = ir_for(b, i64(b, 0), ir_op2(b, "arith.divui", bytes, i64(b, e->slot_bytes)));
  ir_value slots = ir_offset(b, e->coefficients, mul(b, loop.index, i64(b, e->slot_bytes)));
  for (int64_t at = (int64_t)e->rows.t->n_slots * width * 4; at < e->slot_bytes; at += width * 4)
    ir_store(b, ir_float(b, ir_vector(b, width, b->f32), 0), ir_offset_const(b, slots, at), 4, false);
  ir_end_for(b, loop);
}

/* From a token's torques (and head's) to what its boundaries and coordinates gain. */
static void find_position(void *of) { emit_position(of); }

static void emit_token_gradient(encode_emitter *e) {
  ir *b = e->b;
  gradient_token t = {.position = e->positions, .token = e->token, .of = e};
  t.at = torques_at(e);
  t.head = e->head.ptr ? sub(b, e->head, e->heads.begin) : i64(b, 0);
  if (!e->head.ptr) t.find_position = find_position;
  emit_gradient_of_token(e->gradient, &e->rows, &e->gained, &t);
}

/* ---- a row ---- */

/* Rows that are neither written nor in whose place anything is: what encode wrote or read. */
static bool is_kept(const program *p, int stream) {
  bool kept = !p->stream[stream].is_output;
  for (int i = 0; i < p->n_streams; i++) kept = kept && p->stream[i].replaces != stream;
  return kept;
}

static void emit_wedge(encode_emitter *e, int group, const program_op *list, const program_op *op,
                       const row_vectors *value) {
  const row_vectors *turned = NULL;
  for (const program_op *other = list; other; other = other->next)
    if (other->kind == OP_APPLY) turned = &value[other->result];
  emit_row_torques(e->gradient, &e->rows, group, &e->gained, &value[op->argument[0]], turned,
                   op->n_arguments > 1 ? &value[op->argument[1]] : NULL, e->held);
}

/* The ops of a row, one group of its vectors after the other. */
static void emit_row_ops(encode_emitter *e, const program_op *list) {
  for (const program_op *op = list; op; op = op->next)
    if (op->kind == OP_APPLY && op->transposed != e->p->is_transposed)
      diag_bug("cpu/encode", "the plan's matrices are not those of the program");
  for (int group = 0; group < e->rows.t->n_vectors; group++) {
    row_vectors value[PROGRAM_MAX_VALUES];
    for (const program_op *op = list; op; op = op->next) switch (op->kind) {
      case OP_LOAD:
        value[op->result] =
            emit_vectors_load(&e->rows, group, is_kept(e->program, op->stream) ? e->row_kept : e->row_in);
        break;
      case OP_WEDGE: emit_wedge(e, group, list, op, value); break;
      case OP_ADD: value[op->result] = emit_vectors_add(&e->rows, group, &value[op->argument[1]]); break;
      case OP_APPLY: value[op->result] = emit_vectors_apply(&e->rows, group, &value[op->argument[1]]); break;
      case OP_STORE: emit_vectors_store(&e->rows, group, &value[op->argument[0]], e->row_out, e->in_place); break;
      default: diag_bug("cpu/encode", "'%s' in a row", program_op_word(op->kind));
      }
  }
}

/* A row, written as the function's one type, or as either of two. */
static void emit_row(encode_emitter *e, const program_op *list) {
  int own = e->rows.dtype, other = e->rows.out;
  emit_prefetch(e->b, e->ahead, e->row_in, e->p->spec->head_dim * number_bytes(own));
  if (e->gradient) emit_prefetch(e->b, e->ahead, e->row_kept, e->p->spec->head_dim * number_bytes(own));
  if (!e->kind.is_other.ptr) {
    emit_row_ops(e, list);
    return;
  }
  ir_branch branch = ir_if(e->b, e->kind.is_other);
  e->rows.gain = e->kind.gain;
  emit_row_ops(e, list);
  ir_else(e->b, &branch);
  e->rows.out = own;
  emit_row_ops(e, list);
  e->rows.out = other;
  ir_end_if(e->b, branch);
}

/* ---- loops ---- */

static void emit_ops(encode_emitter *e, const program_op *list);

/* How many steps of `step` cover `whole`. */
static ir_value steps(ir *b, ir_value whole, ir_value step) {
  return ir_op2(b, "arith.divui", add(b, whole, sub(b, step, i64(b, 1))), step);
}

/* The sizes of tiles and groups, or runs: the driver's, as far as there is room. Once a call. */
static void measure_rows(encode_emitter *e) {
  ir *b = e->b;
  e->tokens.begin = LOOP_I64(e, token_begin);
  e->tokens.end = LOOP_I64(e, token_end);
  e->tile_tokens = smaller(b, LOOP_I64(e, tile_tokens), i64(b, e->most));
  e->group_rows = LOOP_I64(e, group_rows);
  e->all_rows = add(b, LOOP_I64(e, rows[0].heads), LOOP_I64(e, rows[1].heads));
  e->groups = steps(b, e->all_rows, e->group_rows);
}

static void measure_heads(encode_emitter *e) {
  ir *b = e->b;
  e->tokens.begin = LOOP_I64(e, token_begin);
  e->tokens.end = LOOP_I64(e, token_end);
  ir_value one = i64(b, 1);
  e->heads.begin = LOOP_I64(e, head_begin);
  e->heads.end = LOOP_I64(e, head_end);
  e->run_heads = larger(b, smaller(b, sub(b, e->heads.end, e->heads.begin), i64(b, e->most)), one);
  ir_value room = ir_op2(b, "arith.divui", i64(b, e->most), e->run_heads);
  e->tile_tokens = larger(b, smaller(b, LOOP_I64(e, tile_tokens), room), one);
  e->token_bytes = mul(b, e->run_heads, i64(b, e->slot_bytes));
  e->has_k = ir_compare_int(b, "ne", LOOP_I64(e, rows[1].heads), i64(b, 0));
}

/* Opens a loop over [all.begin, all.end) in runs of `step`. */
static ir_loop begin_runs(encode_emitter *e, run all, ir_value step, run *at) {
  ir *b = e->b;
  ir_loop loop = ir_for(b, i64(b, 0), steps(b, sub(b, all.end, all.begin), step));
  at->begin = add(b, all.begin, mul(b, loop.index, step));
  at->end = smaller(b, add(b, at->begin, step), all.end);
  return loop;
}

static void walk_tiles(encode_emitter *e, const program_op *op) {
  ir_loop tiles = begin_runs(e, e->tokens, e->tile_tokens, &e->tile);
  if (e->gradient) clear_tile(e, e->p->per_head ? e->token_bytes : i64(e->b, e->slot_bytes));
  emit_ops(e, op->body);
  ir_end_for(e->b, tiles);
}

static void walk_runs(encode_emitter *e, const program_op *op) {
  ir_loop runs = begin_runs(e, e->heads, e->run_heads, &e->run);
  emit_ops(e, op->body);
  ir_end_for(e->b, runs);
}

static void walk_groups(encode_emitter *e, const program_op *op) {
  ir *b = e->b;
  ir_loop groups = ir_for(b, i64(b, 0), e->groups);
  e->group.begin = mul(b, groups.index, e->group_rows);
  e->group.end = smaller(b, add(b, e->group.begin, e->group_rows), e->all_rows);
  emit_ops(e, op->body);
  ir_end_for(b, groups);
}

static bool is_of_token(const program_op *op) {
  return op->kind == OP_EVAL || op->kind == OP_MATRIX || op->kind == OP_REDUCE;
}

static void walk_tokens(encode_emitter *e, const program_op *op) {
  ir *b = e->b;
  bool has_heads = op->body->kind == OP_FOR && op->body->space == SPACE_HEADS;
  ir_loop tokens = ir_for(b, e->tile.begin, e->tile.end);
  e->token = tokens.index;
  if (has_heads && is_of_token(op->body->body)) { /* heads share the position */
    ir_branch untabled = ir_if(b, ir_compare_int(b, "eq", LOOP_I64(e, table), i64(b, 0)));
    emit_position(e);
    ir_end_if(b, untabled);
  }
  if (has_heads) e->of_token = ir_offset(b, e->coefficients, mul(b, sub(b, e->token, e->tile.begin), e->token_bytes));
  bool gains = e->gradient && (has_heads ? op->body->body : op->body)->kind == OP_REDUCE;
  if (gains) emit_begin_position_gradient(e->gradient, b, &e->gained);
  emit_ops(e, op->body);
  if (gains) emit_end_position_gradient(e->gradient, b, &e->gained, e->loop, e->token);
  ir_end_for(b, tokens);
}

static void walk_batches(encode_emitter *e, const program_op *op) {
  ir_loop batches = ir_for(e->b, LOOP_I64(e, batch_begin), LOOP_I64(e, batch_end));
  e->batch = batches.index;
  emit_ops(e, op->body);
  ir_end_for(e->b, batches);
}

/* ---- tensors and heads ---- */

static ir_value rows_of_tensor(encode_emitter *e, ir_value tensor) {
  return ir_offset(e->b, ir_offset_const(e->b, e->loop, offsetof(pegen_loop, rows)),
                   mul(e->b, tensor, i64(e->b, sizeof(pegen_rows))));
}

/* One side (0: in, 1: out) of the token's rows. */
static ir_value token_row(encode_emitter *e, ir_value rows, int side, ir_value *step) {
  ir *b = e->b;
  ir_value base = side ? ROWS_I64(e, rows, out) : ROWS_I64(e, rows, in);
  ir_value of_batch = side ? ROWS_I64(e, rows, out_batch) : ROWS_I64(e, rows, in_batch);
  ir_value of_token = side ? ROWS_I64(e, rows, out_token) : ROWS_I64(e, rows, in_token);
  *step = side ? ROWS_I64(e, rows, out_head) : ROWS_I64(e, rows, in_head);
  return add(b, base, add(b, mul(b, e->batch, of_batch), mul(b, e->token, of_token)));
}

static conversion conversion_of(encode_emitter *e, ir_value rows) {
  ir *b = e->b;
  if (e->rows.out == e->rows.dtype) return (conversion){{NULL}, {NULL}};
  return (conversion){.is_other = ir_compare_int(b, "ne", ROWS_I64(e, rows, converts), i64(b, 0)),
                      .gain = ir_cast(b, "arith.truncf", field(e, rows, offsetof(pegen_rows, gain), b->f64), b->f32)};
}

static token_rows rows_of_token(encode_emitter *e, ir_value rows) {
  token_rows t;
  t.in = token_row(e, rows, 0, &t.in_step);
  t.out = token_row(e, rows, 1, &t.out_step);
  t.in_place = ir_compare_int(e->b, "eq", ROWS_I64(e, rows, in), ROWS_I64(e, rows, out));
  t.kind = conversion_of(e, rows);
  return t;
}

/* The same of what encode wrote or read; tensor: of which rows. */
static void find_kept(encode_emitter *e, ir_value tensor, token_rows *t) {
  ir *b = e->b;
  if (!e->gradient) return;
  ir_value kept = ir_offset(b, ir_offset_const(b, e->loop, offsetof(pegen_gradient_loop, kept)),
                            mul(b, tensor, i64(b, sizeof(pegen_input_rows))));
  ir_value of_batch = mul(b, e->batch, KEPT_I64(e, kept, batch)), of_token = mul(b, e->token, KEPT_I64(e, kept, token));
  t->kept = add(b, KEPT_I64(e, kept, data), add(b, of_batch, of_token));
  t->kept_step = KEPT_I64(e, kept, head);
}

static ir_value kept_row(encode_emitter *e, const token_rows *t, ir_value head) {
  return e->gradient ? ir_pointer(e->b, add(e->b, t->kept, mul(e->b, head, t->kept_step))) : (ir_value){NULL};
}

/* Rows of one tensor, or of one head of both, and their torques. */
static void walk_rows(encode_emitter *e, const program_op *op, const token_rows *t,
                      void (*walk_them)(encode_emitter *, const program_op *, const token_rows *)) {
  const gradient_code *g = e->gradient;
  if (g) {
    bool holds = emit_holds_torques(g, e->rows.t);
    e->held = holds ? arena_array(e->memory, ir_value, emit_torque_slots(g, e->rows.t) + 1) : NULL;
    emit_begin_torques(g, &e->rows, &e->gained, e->held);
  }
  walk_them(e, op, t);
  if (g) emit_add_torques(g, &e->rows, &e->gained, e->held, torques_at(e));
}

/* q and k of the head at hand, one after the other, or q alone. */
static void walk_both(encode_emitter *e, const program_op *op, const token_rows *tensors) {
  ir *b = e->b;
  for (int i = 0; i < e->n_tensors; i++) {
    const token_rows *t = &tensors[i];
    e->row_out = ir_pointer(b, add(b, t->out, mul(b, e->head, t->out_step)));
    e->row_in = ir_pointer(b, add(b, t->in, mul(b, e->head, t->in_step)));
    e->row_kept = kept_row(e, t, e->head);
    e->in_place = t->in_place;
    e->kind = t->kind;
    emit_ops(e, op->body);
  }
}

/* The heads of the group. */
static void walk_group(encode_emitter *e, const program_op *op, const token_rows *t) {
  ir *b = e->b;
  int n_held = e->held ? emit_torque_slots(e->gradient, e->rows.t) : 0;
  ir_loop each = ir_for_with(b, t->first, t->last, n_held, e->held, e->held);
  ir_value from = add(b, t->in, mul(b, each.index, t->in_step)), to = add(b, t->out, mul(b, each.index, t->out_step));
  e->row_out = ir_pointer(b, to);
  e->row_in = ir_pointer(b, from);
  e->row_kept = kept_row(e, t, each.index);
  e->in_place = t->in_place;
  e->kind = t->kind;
  emit_ops(e, op->body->body);
  ir_end_for_with(b, each, n_held, e->held, e->held);
}

/* Of each tensor the heads of the group. */
static void walk_tensors(encode_emitter *e, const program_op *op) {
  ir *b = e->b;
  ir_value zero = i64(b, 0);
  ir_loop tensors = ir_for(b, zero, i64(b, 2));
  ir_value rows = rows_of_tensor(e, tensors.index);
  ir_value heads = ROWS_I64(e, rows, heads), before = mul(b, tensors.index, e->q_heads);
  ir_value first = larger(b, sub(b, e->group.begin, before), zero);
  ir_value last = smaller(b, sub(b, e->group.end, before), heads);
  token_rows t = rows_of_token(e, rows);
  t.first = first;
  t.last = last;
  find_kept(e, tensors.index, &t);
  walk_rows(e, op, &t, walk_group);
  ir_end_for(b, tensors);
}

/* Heads whose rotors differ: what is computed of them, */
static void walk_heads_of_token(encode_emitter *e, const program_op *op) {
  ir *b = e->b;
  ir_loop heads = ir_for(b, e->run.begin, e->run.end);
  ir_value all = e->prepared;
  e->head = heads.index;
  e->prepared = ir_offset(b, all, mul(b, sub(b, e->head, e->heads.begin), LOOP_I64(e, prepared_stride)));
  emit_ops(e, op->body);
  e->prepared = all;
  e->head = (ir_value){NULL};
  ir_end_for(b, heads);
}

/* and their rows in the first `tensors` tensors, whose coefficients serve q and k at once. */
static void walk_heads_of_rows(encode_emitter *e, const program_op *op, int tensors) {
  ir *b = e->b;
  e->n_tensors = tensors;
  for (int t = 0; t < tensors; t++) {
    e->tensor[t] = rows_of_token(e, rows_of_tensor(e, i64(b, t)));
    find_kept(e, i64(b, t), &e->tensor[t]);
  }
  ir_loop heads = ir_for(b, e->run.begin, e->run.end);
  e->head = heads.index;
  emit_ops(e, op->body);
  e->head = (ir_value){NULL};
  ir_end_for(b, heads);
}

static void walk_heads(encode_emitter *e, const program_op *op) {
  if (is_of_token(op->body)) {
    walk_heads_of_token(e, op);
    return;
  }
  ir_branch branch = ir_if(e->b, e->has_k);
  walk_heads_of_rows(e, op, 2);
  ir_else(e->b, &branch);
  walk_heads_of_rows(e, op, 1);
  ir_end_if(e->b, branch);
}

/* ---- ops ---- */

static void walk(encode_emitter *e, const program_op *op) {
  switch (op->space) {
  case SPACE_TILES: walk_tiles(e, op); break;
  case SPACE_GROUPS: walk_groups(e, op); break;
  case SPACE_RUNS: walk_runs(e, op); break;
  case SPACE_TOKENS:
    if (op->part & PART_ENCODED) walk_tokens(e, op); /* the driver copies the others */
    break;
  case SPACE_BATCHES: walk_batches(e, op); break;
  case SPACE_TENSORS:
    if (e->head.ptr) walk_rows(e, op, e->tensor, walk_both);
    else walk_tensors(e, op);
    break;
  case SPACE_HEADS: walk_heads(e, op); break;
  default: diag_bug("cpu/encode", "a loop over %s", program_space_word(op->space));
  }
}

static void emit_ops(encode_emitter *e, const program_op *list) {
  for (const program_op *op = list; op; op = op->next) switch (op->kind) {
    case OP_FOR: walk(e, op); break;
    case OP_EVAL:
    case OP_MATRIX: /* rotor_T does all evals of a token and its matrices at once */
      if (!op->next || !is_of_token(op->next)) emit_token_coefficients(e, e->prepared, coefficients_at(e));
      break;
    case OP_REDUCE: emit_token_gradient(e); return;
    case OP_HOLD: emit_load_slots(&e->rows, coefficients_at(e)); break;
    default: emit_row(e, op); return;
    }
}

/* prepare_T does the evals of the call; what is left are the loops that a schedule has cut. */
static void emit_tokens(encode_emitter *e) {
  for (const program_op *op = e->program->body; op; op = op->next) {
    if (op->kind != OP_FOR || (op->space != SPACE_RUNS && op->space != SPACE_TILES)) continue;
    if (op->space == SPACE_RUNS) measure_heads(e);
    else measure_rows(e);
    walk(e, op);
  }
}

/* Tokens, or heads of tokens, whose coefficients there is room for on the stack (pegen/pegen.h says how much a call
 * needs; rotors that differ from head to head stand beside what is prepared for them). */
static int most_rotors(int64_t slot_bytes, bool per_head) {
  enum { TILE_BYTES = 96 * 1024, TILE_BYTES_PER_HEAD = 64 * 1024, MOST = 128 };
  int64_t count = slot_bytes ? (per_head ? TILE_BYTES_PER_HEAD : TILE_BYTES) / slot_bytes : MOST;
  return count < 1 ? 1 : count > MOST ? MOST : (int)count;
}

static void emit_function(ir *b, arena *a, const program *scheduled, const plan *p, const plan_tile *t,
                          const cpu_target *target, int dtype, int out, bool streaming, const gradient_code *gradient,
                          int most) {
  encode_emitter e = {.b = b, .memory = a, .p = p, .program = scheduled, .target = target, .gradient = gradient};
  e.rows = (row_emitter){
      .b = b, .memory = a, .p = p, .t = t, .target = target, .dtype = dtype, .out = out, .streaming = streaming};
  const char *name =
      out == dtype ? emit_encode_name(a, target, dtype, streaming) : emit_converting_name(a, target, dtype, out);
  if (gradient) name = emit_gradient_name(a, gradient->target, dtype);
  e.slot_bytes = (int64_t)(t->n_slots + (gradient ? emit_torque_slots(gradient, t) : 0)) * t->width * 4;
  e.most = most_rotors(e.slot_bytes, p->per_head);
  if (e.most > most) e.most = most;
  ir_function(b, name, true, (MlirType){NULL}, 1, &b->ptr, &e.loop);
  e.positions = ir_alloca(b, emit_place_numbers(p->spec) * 8, 8);
  e.coefficients = ir_alloca(b, e.most * e.slot_bytes + CACHE_LINE, CACHE_LINE);
  e.ahead = emit_load_ahead(b, e.loop);
  e.q_heads = LOOP_I64(&e, rows[0].heads);
  e.prepared = LOOP_PTR(&e, prepared);
  if (gradient) e.gained = emit_load_gradient(gradient, b, t, e.loop);
  emit_tokens(&e);
  ir_return(b);
}

void emit_encode(ir *b, arena *a, const program *scheduled, const plan *p, const plan_tile *t, const cpu_target *target,
                 int dtype, int out, bool streaming) {
  emit_function(b, a, scheduled, p, t, target, dtype, out, streaming, NULL, INT_MAX);
}

void emit_encode_few(ir *b, arena *a, const program *scheduled, const plan *p, const plan_tile *t,
                     const cpu_target *target, int most) {
  emit_function(b, a, scheduled, p, t, target, NUMBER_F32, NUMBER_F32, false, NULL, most);
}

void emit_encode_gradient(ir *b, arena *a, const program *scheduled, const plan *p, const plan_tile *t,
                          const cpu_target *target, int dtype, const gradient_code *gradient) {
  emit_function(b, a, scheduled, p, t, target, dtype, dtype, false, gradient, INT_MAX);
}
