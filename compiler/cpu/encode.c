/* cpu/encode: emits the ops of a program in the order of its loops; see cpu/encode.h.
 *
 * A token's coefficients are computed once, lie in a tile's scratch, and are held in registers while rows are walked:
 * every head of q and k, in every batch that the driver puts into one call.
 */
#include "cpu/encode.h"

#include "base/diag.h"
#include "cpu/encode_emitter.h"
#include "cpu/place.h"

/* Addresses of the row of each input, behind all else of a place. */
static void emit_input_rows(encode_emitter *e) {
  ir *b = e->b;
  const spec *s = e->row->spec;
  for (int i = 0; i < s->n_inputs; i++) {
    ir_value rows = ir_offset_const(b, LOOP_PTR(e, inputs), i * (int64_t)sizeof(pegen_input_rows));
    ir_value of_batch = mul(b, e->batch, KEPT_I64(e, rows, batch)),
             of_token = mul(b, e->token, KEPT_I64(e, rows, token)),
             row = add(b, KEPT_I64(e, rows, data), add(b, of_batch, of_token));
    if (e->own_rows) row = add(b, row, mul(b, e->row_head, KEPT_I64(e, rows, head)));
    ir_store(b, row, ir_offset_const(b, e->positions, (emit_place_numbers(s) - s->n_inputs + i) * 8), 8, false);
  }
}

/* ---- what is computed of a token ---- */

/* Where coefficients are in the tile's scratch: the token's, or the head's of it. */
static ir_value coefficients_at(encode_emitter *e) {
  ir *b = e->b;
  if (e->head.ptr) return ir_offset(b, e->of_token, mul(b, sub(b, e->head, e->run.begin), i64(b, e->slot_bytes)));
  return ir_offset(b, e->coefficients, mul(b, sub(b, e->token, e->tile.begin), i64(b, e->slot_bytes)));
}

static void emit_position(encode_emitter *e) {
  emit_token_place(e->b, e->row->spec, e->loop, e->token, e->positions);
  if (e->p->of_rows) emit_input_rows(e);
}

static bool has_values(const row_code *row) {
  for (int i = 0; i < row->n_parts; i++)
    if (row->part[i].p->n_values > 0) return true;
  return false;
}

static bool has_shared(const row_code *row) {
  for (int i = 0; i < row->n_parts; i++)
    if (emit_is_shared(row->part[i].p)) return true;
  return false;
}

/* A token's coefficients: of its row of a table where there is one, else from its position. */
static void emit_token_coefficients(encode_emitter *e, ir_value prepared, ir_value out) {
  ir *b = e->b;
  if (e->row->slot_bytes == 0) return;
  ir_value place_arguments[] = {e->positions, prepared, out};
  if (e->p->of_rows) { /* there is no table */
    emit_position(e);
    ir_call_pointer(b, LOOP_PTR(e, rotor), 3, place_arguments);
    return;
  }
  ir_value table = LOOP_I64(e, table);
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", table, i64(b, 0)));
  if (has_values(e->row)) {
    ir_value row = add(b, table, mul(b, e->token, LOOP_I64(e, table_token)));
    if (e->head.ptr) row = add(b, row, mul(b, e->head, LOOP_I64(e, table_head)));
    ir_value arguments[] = {ir_pointer(b, row), out};
    ir_call_pointer(b, LOOP_PTR(e, unfold), 2, arguments);
  }
  ir_else(b, &branch);
  if (!e->head.ptr) emit_position(e);
  if (has_shared(e->row)) {
    ir_branch first = ir_if(b, ir_compare_int(b, "eq", e->head, e->run.begin));
    ir_call_pointer(b, LOOP_PTR(e, rotor), 3, place_arguments);
    ir_else(b, &first);
    ir_call_pointer(b, LOOP_PTR(e, rotor_own), 3, place_arguments);
    ir_end_if(b, first);
  } else ir_call_pointer(b, LOOP_PTR(e, rotor), 3, place_arguments);
  ir_end_if(b, branch);
}

/* ---- gradients ---- */

/* Where torques of the token, or of the head of it, are summed: behind its coefficients. */
static ir_value torques_at(encode_emitter *e) { return ir_offset_const(e->b, coefficients_at(e), e->row->slot_bytes); }

/* Begins the sums of a tile's tokens. */
static void clear_tile(encode_emitter *e, ir_value token_bytes) {
  ir *b = e->b;
  ir_value bytes = mul(b, sub(b, e->tile.end, e->tile.begin), token_bytes);
  ir_loop loop = ir_for(b, i64(b, 0), ir_op2(b, "arith.divui", bytes, i64(b, e->slot_bytes)));
  ir_value slots = ir_offset(b, e->coefficients, mul(b, loop.index, i64(b, e->slot_bytes)));
  int64_t at = e->row->slot_bytes;
  for (const gradient_code *g = e->gradient; g; g = g->next) {
    const plan_tile *t = e->part[g->part].t;
    ir_value none = ir_float(b, ir_vector(b, t->width, b->f32), 0);
    for (int i = 0; i < emit_torque_slots(g, t); i++, at += t->width * 4)
      ir_store(b, none, ir_offset_const(b, slots, at), 4, false);
  }
  ir_end_for(b, loop);
}

/* From a token's torques (and head's) to what its boundaries and coordinates gain. */
static void find_position(void *of) { emit_position(of); }

static void emit_token_gradient(encode_emitter *e) {
  ir *b = e->b;
  gradient_token t = {.position = e->positions, .token = e->token, .of = e};
  t.at = torques_at(e);
  ir_value head = e->p->of_rows && e->p->per_head ? e->row_head : e->head;
  t.head = head.ptr ? sub(b, head, e->heads.begin) : i64(b, 0);
  if (!e->head.ptr) t.find_position = find_position;
  emit_gradient_of_token(e->gradient, e->b, &e->gained, &t);
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
  e->tile_tokens = smaller(b, LOOP_I64(e, tile_tokens), i64(b, e->most));
  e->group_rows = LOOP_I64(e, group_rows);
  e->all_rows = add(b, LOOP_I64(e, rows[0].heads), LOOP_I64(e, rows[1].heads));
  e->groups = steps(b, e->all_rows, e->group_rows);
}

static void measure_own_rows(encode_emitter *e) {
  ir *b = e->b;
  e->heads = (run){LOOP_I64(e, head_begin), LOOP_I64(e, head_end)};
  e->run_heads = LOOP_I64(e, group_rows);
  e->tile_tokens = smaller(b, LOOP_I64(e, tile_tokens), i64(b, e->most));
}

static void measure_heads(encode_emitter *e) {
  ir *b = e->b;
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
  if (e->gradient && !e->own_rows) clear_tile(e, e->p->per_head ? e->token_bytes : i64(e->b, e->slot_bytes));
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

static void walk_tile_rows(encode_emitter *e, const program_op *op);

static void walk_tokens(encode_emitter *e, const program_op *op) {
  ir *b = e->b;
  if (e->own_rows && !is_of_token(op->body)) {
    walk_tile_rows(e, op);
    return;
  }
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
  if (gains && e->p->of_rows)
    emit_end_input_gradient(e->gradient, b, &e->gained, e->loop, e->batch, e->token, e->row_head);
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
  if (e->part[0].out == e->part[0].dtype) return (conversion){{NULL}, {NULL}};
  return (conversion){.is_other = ir_compare_int(b, "ne", ROWS_I64(e, rows, converts), i64(b, 0)),
                      .gain = ir_cast(b, "arith.truncf", field(e, rows, offsetof(pegen_rows, gain), b->f64), b->f32)};
}

/* Weights of rows that are not normalised. */
static const char *encode_ones(arena *a, const cpu_target *target) {
  return arena_printf(a, "ones_%s", target->suffix);
}

void emit_encode_tables(ir *b, arena *a, const spec *s, const cpu_target *target) {
  if (!target->is_compact) return;
  float *ones = arena_array(a, float, s->head_dim);
  for (int i = 0; i < s->head_dim; i++) ones[i] = 1;
  ir_table(b, encode_ones(a, target), s->head_dim, ones, NULL);
}

static normalisation normalisation_of(encode_emitter *e, ir_value rows) {
  ir *b = e->b;
  if (!e->normalises) return (normalisation){.is_certain = false};
  ir_value epsilon = field(e, rows, offsetof(pegen_rows, epsilon), b->f64);
  ir_value is_wanted = ir_compare_int(b, "ne", ROWS_I64(e, rows, norm), i64(b, 0));
  ir_value weights = field(e, rows, offsetof(pegen_rows, norm), b->ptr);
  if (e->target->is_compact)
    weights = ir_select(b, is_wanted, weights, ir_table_address(b, encode_ones(e->memory, e->target)));
  return (normalisation){
      .is_wanted = is_wanted, .weights = weights, .epsilon = ir_cast(b, "arith.truncf", epsilon, b->f32)};
}

/* What pegen_rows.slot holds of the token. */
static ir_value slot_of_token(encode_emitter *e, ir_value rows) {
  ir *b = e->b;
  ir_value of_batch = mul(b, e->batch, ROWS_I64(e, rows, slot_batch)),
           of_token = mul(b, e->token, ROWS_I64(e, rows, slot_token));
  return ir_load(b, b->i64, ir_pointer(b, add(b, ROWS_I64(e, rows, slot), add(b, of_batch, of_token))), 8);
}

static token_rows rows_of_token(encode_emitter *e, ir_value rows) {
  token_rows t = {.has_slot = {NULL}};
  t.in = token_row(e, rows, 0, &t.in_step);
  t.out = token_row(e, rows, 1, &t.out_step);
  if (e->has_slots) {
    ir_value slot = slot_of_token(e, rows);
    t.has_slot = ir_compare_int(e->b, "ne", slot, i64(e->b, PEGEN_NO_ROW));
    t.out = add(e->b, t.out, slot);
  }
  t.in_place = ir_compare_int(e->b, "eq", ROWS_I64(e, rows, in), ROWS_I64(e, rows, out));
  t.kind = conversion_of(e, rows);
  t.norm = normalisation_of(e, rows);
  return t;
}

/* Finds rows that encode wrote or read, where the program asks for it; tensor: of which rows. */
static void find_kept(encode_emitter *e, ir_value tensor, token_rows *t) {
  ir *b = e->b;
  if (!e->keeps) return;
  ir_value kept = ir_offset(b, ir_offset_const(b, e->loop, offsetof(pegen_loop, kept)),
                            mul(b, tensor, i64(b, sizeof(pegen_input_rows))));
  ir_value of_batch = mul(b, e->batch, KEPT_I64(e, kept, batch)), of_token = mul(b, e->token, KEPT_I64(e, kept, token));
  t->kept = add(b, KEPT_I64(e, kept, data), add(b, of_batch, of_token));
  t->kept_step = KEPT_I64(e, kept, head);
}

static ir_value kept_row(encode_emitter *e, const token_rows *t, ir_value head) {
  return e->keeps ? ir_pointer(e->b, add(e->b, t->kept, mul(e->b, head, t->kept_step))) : (ir_value){NULL};
}

/* The row of the head at hand in a tensor, and in what encode kept of it. */
static void ask_for_row(encode_emitter *e, int tensor) {
  ir *b = e->b;
  int half = e->row->spec->head_dim * number_bytes(e->part[0].dtype) / 2;
  token_rows t = {.has_slot = {NULL}};
  t.in = token_row(e, rows_of_tensor(e, i64(b, tensor)), 0, &t.in_step);
  find_kept(e, i64(b, tensor), &t);
  emit_prefetch_lines(b, ir_pointer(b, add(b, t.in, mul(b, e->head, t.in_step))), half, 2);
  if (e->keeps) emit_prefetch_lines(b, kept_row(e, &t, e->head), half, 2);
}

/* What the next head's rotor is built of: behind many requests it would be long waited for. */
static void ask_for_prepared(encode_emitter *e) {
  enum { MOST_BYTES = 4096 };
  int64_t bytes = e->row->prepared_bytes;
  ir_value next = ir_offset_const(e->b, e->prepared, bytes);
  emit_prefetch_lines(e->b, next, (int)(bytes < MOST_BYTES ? bytes : MOST_BYTES), 1);
}

/* Asks for the head's rows of all batches, which are turned when the tile's rotors are built: memory has nothing else
 * to do meanwhile. Half of a row is enough for the hardware to see what comes behind it. */
static void ask_for_rows(encode_emitter *e) {
  ir *b = e->b;
  ir_branch wanted = ir_if(b, ir_compare_int(b, "ne", LOOP_I64(e, prefetch_built), i64(b, 0)));
  ask_for_prepared(e);
  ir_loop batches = ir_for(b, LOOP_I64(e, batch_begin), LOOP_I64(e, batch_end));
  e->batch = batches.index;
  ask_for_row(e, 0);
  ir_branch both = ir_if(b, e->has_k);
  ask_for_row(e, 1);
  ir_end_if(b, both);
  ir_end_for(b, batches);
  ir_end_if(b, wanted);
}

/* Rows of one tensor, or of one head of both, and their torques. */
static void walk_rows(encode_emitter *e, const program_op *op, const token_rows *t,
                      void (*walk_them)(encode_emitter *, const program_op *, const token_rows *)) {
  const gradient_code *g = e->gradient;
  if (g) {
    e->n_held = emit_held_torques(g, e->row);
    e->held = e->n_held ? arena_array(e->memory, ir_value, e->n_held) : NULL;
    emit_begin_torques(g, e->part, &e->gained, e->held);
  }
  walk_them(e, op, t);
  if (g) emit_add_torques(g, e->part, &e->gained, e->held, torques_at(e));
}

/* Where what a head is multiplied by stands, of those that were looked at from `first` on. */
static ir_value factor_at(encode_emitter *e, const token_rows *t, ir_value head, ir_value first) {
  if (!t->norm.factor.ptr) return t->norm.factor;
  return ir_offset(e->b, t->norm.factor, mul(e->b, sub(e->b, head, first), i64(e->b, 4)));
}

/* The rows of a tensor's head are those at hand. */
static void set_rows(encode_emitter *e, const token_rows *t, ir_value head) {
  ir *b = e->b;
  ir_value from = add(b, t->in, mul(b, head, t->in_step)), to = add(b, t->out, mul(b, head, t->out_step));
  e->row_out = ir_pointer(b, to);
  e->row_in = ir_pointer(b, from);
  e->row_kept = kept_row(e, t, head);
  e->in_place = t->in_place;
  e->kind = t->kind;
  e->norm = t->norm;
}

/* q and k of the head at hand, one after the other, or q alone. */
static void walk_both(encode_emitter *e, const program_op *op, const token_rows *tensors) {
  for (int i = 0; i < e->n_tensors; i++) {
    const token_rows *t = &tensors[i];
    set_rows(e, t, e->head);
    e->norm.factor = factor_at(e, t, e->head, e->run.begin);
    emit_ops(e, op->body);
  }
}

/* The heads of the group. */
static void walk_group(encode_emitter *e, const program_op *op, const token_rows *t) {
  ir *b = e->b;
  int n_held = e->n_held;
  ir_loop each = ir_for_with(b, t->first, t->last, n_held, e->held, e->held);
  set_rows(e, t, each.index);
  e->norm.factor = factor_at(e, t, each.index, t->first);
  emit_ops(e, op->body->body);
  ir_end_for_with(b, each, n_held, e->held, e->held);
}

/* Rows that are normalised: what some of them are multiplied by, and then these rows. */
static void walk_normalised_group(encode_emitter *e, const program_op *op, const token_rows *t) {
  ir *b = e->b;
  run some;
  run all = {t->first, larger(b, t->first, t->last)}; /* groups may end before a tensor begins */
  ir_loop runs = begin_runs(e, all, i64(b, NORM_ROWS), &some);
  token_rows of_run = *t;
  of_run.first = some.begin;
  of_run.last = some.end;
  of_run.norm.is_certain = true;
  of_run.norm.factor = e->factors;
  encode_find_factors(e, t, some.begin, some.end, e->factors);
  walk_group(e, op, &of_run);
  ir_end_for(b, runs);
}

static void walk_group_as_asked(encode_emitter *e, const program_op *op, const token_rows *t) {
  if (!e->normalises) {
    walk_group(e, op, t);
    return;
  }
  if (e->target->is_compact) {
    walk_normalised_group(e, op, t);
    return;
  }
  ir_branch branch = ir_if(e->b, t->norm.is_wanted);
  walk_normalised_group(e, op, t);
  ir_else(e->b, &branch);
  e->is_plain = true;
  walk_group(e, op, t);
  e->is_plain = false;
  ir_end_if(e->b, branch);
}

/* Walks the heads of the group in each tensor. */
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
  t.last = t.has_slot.ptr ? ir_select(b, t.has_slot, last, zero) : last;
  find_kept(e, tensors.index, &t);
  walk_rows(e, op, &t, walk_group_as_asked);
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

static void find_factors_of_run(encode_emitter *e, token_rows *t, int tensor) {
  if (!e->normalises) return;
  ir_value factors = ir_offset_const(e->b, e->factors, (int64_t)tensor * e->most * 4);
  ir_branch branch;
  if (!e->target->is_compact) branch = ir_if(e->b, t->norm.is_wanted);
  encode_find_factors(e, t, e->run.begin, e->run.end, factors);
  if (!e->target->is_compact) ir_end_if(e->b, branch);
  t->norm.factor = factors;
}

/* and their rows in the first `tensors` tensors, whose coefficients serve q and k at once. */
static void walk_heads_of_rows(encode_emitter *e, const program_op *op, int tensors) {
  ir *b = e->b;
  e->n_tensors = tensors;
  for (int t = 0; t < tensors; t++) find_factors_of_run(e, &e->tensor[t], t);
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
  ir *b = e->b;
  for (int t = 0; t < 2; t++) {
    e->tensor[t] = rows_of_token(e, rows_of_tensor(e, i64(b, t)));
    find_kept(e, i64(b, t), &e->tensor[t]);
  }
  ir_value has_first = e->tensor[0].has_slot, has_both = e->has_k;
  if (e->has_slots) has_both = ir_op2(b, "arith.andi", has_both, e->tensor[1].has_slot);
  ir_branch branch = ir_if(b, has_both), own;
  walk_heads_of_rows(e, op, 2);
  ir_else(b, &branch);
  if (e->has_slots) own = ir_if(b, has_first);
  walk_heads_of_rows(e, op, 1);
  if (e->has_slots) ir_end_if(b, own);
  ir_end_if(b, branch);
}

/* ---- rows of their own: runs of heads, tensors, tiles, heads, tokens ---- */

static void walk_each_tensor(encode_emitter *e, const program_op *op) {
  ir *b = e->b;
  ir_loop tensors = ir_for(b, i64(b, 0), i64(b, 2));
  e->row_tensor = tensors.index;
  emit_ops(e, op->body);
  ir_end_for(b, tensors);
}

static void walk_each_head(encode_emitter *e, const program_op *op) {
  ir *b = e->b;
  ir_value heads = ROWS_I64(e, rows_of_tensor(e, e->row_tensor), heads), all = e->prepared;
  ir_loop each = ir_for(b, e->run.begin, smaller(b, e->run.end, heads));
  e->row_head = each.index;
  if (e->p->per_head)
    e->prepared = ir_offset(b, all, mul(b, sub(b, each.index, e->heads.begin), LOOP_I64(e, prepared_stride)));
  if (e->gradient) clear_tile(e, i64(b, e->slot_bytes));
  emit_ops(e, op->body);
  e->prepared = all;
  ir_end_for(b, each);
}

static void walk_own(encode_emitter *e, const program_op *op, const token_rows *t) {
  set_rows(e, t, e->row_head);
  emit_ops(e, op->body);
}

/* The row of each token of the tile. */
static void walk_tile_rows(encode_emitter *e, const program_op *op) {
  ir *b = e->b;
  ir_loop tokens = ir_for(b, e->tile.begin, e->tile.end);
  e->token = tokens.index;
  token_rows t = rows_of_token(e, rows_of_tensor(e, e->row_tensor));
  find_kept(e, e->row_tensor, &t);
  ir_branch branch;
  if (e->has_slots) branch = ir_if(b, t.has_slot);
  walk_rows(e, op, &t, walk_own);
  if (e->has_slots) ir_end_if(b, branch);
  ir_end_for(b, tokens);
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
    if (e->own_rows) walk_each_tensor(e, op);
    else if (e->head.ptr) walk_rows(e, op, e->tensor, walk_both);
    else walk_tensors(e, op);
    break;
  case SPACE_HEADS:
    if (e->own_rows) walk_each_head(e, op);
    else walk_heads(e, op);
    break;
  default: diag_bug("cpu/encode", "a loop over %s", program_space_word(op->space));
  }
}

static void hold_coefficients(encode_emitter *e, const program_op *op) {
  ir_value coefficients = coefficients_at(e);
  for (int i = 0; i < e->row->n_parts; i++)
    if (encode_is_of_part(e, op, i)) {
      ir_value from = emit_is_shared(e->part[i].p) ? e->of_token : coefficients; /* of the run's first head */
      emit_load_slots(&e->part[i], ir_offset_const(e->b, from, e->row->part[i].slots));
    }
}

static void emit_ops(encode_emitter *e, const program_op *list) {
  for (const program_op *op = list; op; op = op->next) switch (op->kind) {
    case OP_FOR: walk(e, op); break;
    case OP_EVAL:
    case OP_MATRIX: /* rotor_T does all evals of a token and its matrices at once */
      if (op->next && is_of_token(op->next)) break;
      if (e->head.ptr && e->part[0].dtype == NUMBER_F32) ask_for_rows(e);
      emit_token_coefficients(e, e->prepared, coefficients_at(e));
      break;
    case OP_REDUCE: emit_token_gradient(e); return;
    case OP_HOLD: hold_coefficients(e, op); break;
    default: encode_row(e, op); return;
    }
}

/* prepare_T does the evals of the call; what is left are the loops that a schedule has cut. */
static void emit_tokens(encode_emitter *e) {
  for (const program_op *op = e->program->body; op; op = op->next) {
    bool is_cut = op->space == SPACE_RUNS || op->space == SPACE_TILES || op->space == SPACE_BATCHES;
    if (op->kind != OP_FOR || !is_cut) continue;
    e->tokens.begin = LOOP_I64(e, token_begin);
    e->tokens.end = LOOP_I64(e, token_end);
    if (e->own_rows) measure_own_rows(e);
    else if (op->space == SPACE_RUNS) measure_heads(e);
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

static bool has_kept(const program *p) {
  for (int i = 0; i < p->n_streams; i++)
    if (program_stream_is_kept(p, i)) return true;
  return false;
}

/* Stores past the caches are of whole vectors where these begin at multiples of their size. */
static bool may_stream(const plan_tile *t) {
  for (int j = 0; j < t->n_vectors; j++)
    if (t->start[j] % (t->pair && t->pair[j] == j ? 2 * t->width : t->width)) return false;
  return true;
}

/* Vectors of a part. Torques are summed in lanes that stand in the tensor's order, and loops over chunks are short. */
static const plan_tile *vectors_of(arena *a, const row_code *row, int part, int dtype, const cpu_target *target,
                                   bool has_gradient) {
  const plan_tile *t = row->part[part].t;
  if (!number_takes_turns(dtype) || has_gradient || target->is_compact) return t;
  return plan_tile_in_pairs(a, row->part[part].p, t);
}

void emit_encode(ir *b, arena *a, const encode_kind *k) {
  const row_code *row = k->row;
  const cpu_target *target = k->target;
  const gradient_code *gradient = k->gradient;
  const plan *p = row->part[0].p;
  int dtype = k->dtype;
  encode_emitter e = {
      .b = b, .memory = a, .p = p, .row = row, .program = k->program, .target = target, .gradient = gradient};
  e.own_rows = p->of_rows && !k->program->heads_share;
  e.keeps = has_kept(k->program);
  e.normalises = k->normalises;
  e.has_slots = !gradient && !k->most; /* a few rows: attention's own */
  bool cuts_nan =
      !p->per_head && !e.own_rows && !k->rounds; /* of few rows it does not pay, nor beside an instruction */
  for (int i = 0; i < row->n_parts; i++) {
    const plan_tile *t = vectors_of(a, row, i, dtype, target, gradient != NULL);
    e.part[i] = (row_emitter){.b = b,
                              .memory = a,
                              .p = row->part[i].p,
                              .t = t,
                              .target = target,
                              .dtype = dtype,
                              .out = k->out,
                              .rounds = k->rounds,
                              .streaming = k->streaming && (row->n_parts == 1 || may_stream(t)),
                              .cuts_nan = cuts_nan && t->pair,
                              .by_chunks = target->is_compact && !gradient && t->row_step > 0};
  }
  const char *name = k->out == dtype ? emit_encode_name(a, target, dtype, k->streaming)
                                     : emit_converting_name(a, target, dtype, k->out);
  if (k->rounds)
    name = emit_rounding_encode_name(a, target,
                                     k->streaming    ? PEGEN_ROUNDING_STREAMING
                                     : k->normalises ? PEGEN_ROUNDING_NORMALISED
                                                     : PEGEN_ROUNDING_CACHED);
  if (k->program->heads_share) name = emit_of_tokens_name(a, name);
  if (gradient) name = emit_gradient_name(a, gradient->target, dtype);
  e.slot_bytes = row->slot_bytes + (gradient ? emit_row_torque_bytes(gradient, row) : 0);
  e.most = most_rotors(e.slot_bytes, p->per_head && !p->of_rows);
  if (k->most && e.most > k->most) e.most = k->most;
  ir_open(b, name, "p", &e.loop);
  e.positions = ir_alloca(b, emit_place_numbers(row->spec) * 8, 8);
  e.coefficients = ir_alloca(b, e.most * e.slot_bytes + CACHE_LINE, CACHE_LINE);
  if (k->normalises) e.factors = ir_alloca(b, 4 * (p->per_head ? 2 * e.most : NORM_ROWS), 4);
  e.ahead = emit_load_ahead(b, e.loop);
  e.q_heads = LOOP_I64(&e, rows[0].heads);
  e.prepared = LOOP_PTR(&e, prepared);
  if (gradient) e.gained = emit_load_gradient(gradient, b, row, e.loop);
  emit_tokens(&e);
  ir_return(b);
}
