/* gpu/gains: see gpu/gains.h. */
#include "gpu/gains.h"

#include "gpu/exponential.h"
#include "gpu/index.h"

#include "kernel/launch.h"

enum { NUMBER = TWO_FLOAT_BYTES };

/* ---- rows ---- */

void gpu_open_gains(gpu_gains *g, gpu_body *t, const gpu_program *program, row_thread *kept) {
  t->rows.exprs = &t->exprs;
  t->rows.streams = row_streams(t->b, t->parameter);
  t->rows.block_present = arena_array(t->rows.memory, ir_value, 1);
  *g = (gpu_gains){.body = t, .of = gpu_gains_of(program), .own = t->parameter + gpu_parameters(t->p->spec)};
  g->from_input = ir_compare_int(t->b, "ne", g->own[PEGEN_PTX_FROM_INPUT], i64(t->b, 0));
  *kept = t->rows;
  kept->parameter = gpu_kept_parameters(t, g->own);
}

gpu_chunk gpu_open_chunk(gpu_gains *g, ir_value chunk) {
  ir *b = g->body->b;
  ir_value items = narrow(b, g->own[PEGEN_PTX_ITEMS]), size = narrow(b, g->own[PEGEN_PTX_CHUNK]),
           begin = mul(b, chunk, size), end = smaller(b, add(b, begin, size), items);
  g->chunk = chunk;
  return (gpu_chunk){.begin = begin, .end = end, .size = size, .exists = below(b, begin, items)};
}

void gpu_set_item(gpu_gains *g, ir_value item) {
  gpu_body *t = g->body;
  ir *b = t->b;
  ir_value tokens = narrow(b, t->parameter[PEGEN_PTX_TOKENS]), rows = narrow(b, t->parameter[PEGEN_PTX_ROWS]);
  g->item = item;
  ir_value set = ir_op2(b, "arith.divui", item, tokens);
  t->owner.token = ir_op2(b, "arith.remui", item, tokens);
  t->owner.batch = set;
  t->begin = t->per_head ? mul(b, set, rows) : i32(b, 0);
  t->end = add(b, t->begin, rows);
}

ir_value gpu_is_written(gpu_body *t, ir_value row) {
  ir *b = t->b;
  ir_value out[2], is_k;
  for (int k = 0; k < 2; k++) out[k] = t->parameter[(k ? PEGEN_PTX_K : PEGEN_PTX_Q) + PEGEN_PTX_TENSOR_OUT];
  if (t->per_head) {
    ir_value two = ir_compare_int(b, "eq", t->rows.streams, i32(b, 2));
    is_k = both(b, two, ir_compare_int(b, "ne", ir_op2(b, "arith.andi", row, i32(b, 1)), i32(b, 0)));
  } else {
    ir_value heads = narrow(b, t->parameter[PEGEN_PTX_Q + PEGEN_PTX_TENSOR_HEADS]);
    is_k = ir_compare_int(b, "sge", row, heads);
  }
  return ir_compare_int(b, "ne", ir_select(b, is_k, out[1], out[0]), i64(b, 0));
}

/* ---- what torques give ---- */

static ir_value block_of(gpu_gains *g, int slot) {
  const thread_tile *t = g->body->tile;
  return emit_thread_index(&g->body->exprs, t->block_at + slot * t->n_units);
}

/* Where number i of the head and block stands among a chunk's: bytes, i64. Rows that turn by inputs are of heads that
 * are apart and may have operands in common: then each head's are a chunk's own. */
static ir_value sum_at(gpu_gains *g, int i, int slot) {
  ir *b = g->body->b;
  const plan *p = g->body->p;
  int blocks = g->row ? plan_gradient_blocks(g->row) : p->spec->n_blocks,
      sums = g->row ? plan_gradient_sums(g->row, g->row->n_parts) : g->of->n_boundaries,
      before = g->row ? plan_gradient_sums(g->row, g->part) : 0;
  bool apart = g->body->of_rows && !p->per_head;
  int heads = g->body->per_head && !apart ? p->spec->heads : 1;
  ir_value block = block_of(g, slot), row = i32(b, (int64_t)(before + i) * heads), chunk = g->chunk;
  if (apart) chunk = add(b, mul(b, chunk, gpu_heads(g->body)), g->body->exprs.head);
  else if (g->body->per_head) row = add(b, row, g->body->exprs.head);
  ir_value of_chunk = i64(b, (int64_t)sums * heads * blocks);
  ir_value at = add(b, mul(b, wide(b, chunk), of_chunk), wide(b, add(b, scaled(b, row, blocks), block)));
  return add(b, g->own[PEGEN_PTX_SUMS], mul(b, at, i64(b, NUMBER)));
}

static ir_branch if_wanted(gpu_gains *g, int parameter) {
  ir *b = g->body->b;
  ir_value wanted = ir_compare_int(b, "ne", g->own[parameter], i64(b, 0));
  return ir_if(b, g->stores.ptr ? both(b, wanted, g->stores) : wanted);
}

/* Calls for a slot's blocks that are there. */
static ir_branch if_present(gpu_gains *g, int slot) {
  ir_value present = g->body->rows.block_present[slot];
  return ir_if(g->body->b, present.ptr ? present : ir_int(g->body->b, g->body->b->i1, 1));
}

void gpu_clear_sums(gpu_gains *g) {
  ir *b = g->body->b;
  if (g->of->n_boundaries == 0) return;
  ir_branch wanted = if_wanted(g, PEGEN_PTX_SUMS);
  for (int slot = 0; slot < g->body->tile->n_blocks; slot++) {
    ir_branch present = if_present(g, slot);
    for (int i = 0; i < g->of->n_boundaries; i++)
      two_float_store(b, two_float_const(b, 0), ir_pointer(b, sum_at(g, i, slot)));
    ir_end_if(b, present);
  }
  ir_end_if(b, wanted);
}

static void add_to_sums(gpu_gains *g, const two_float *gained) {
  ir *b = g->body->b;
  int count = g->of->n_boundaries;
  ir_branch wanted = if_wanted(g, PEGEN_PTX_SUMS);
  for (int slot = 0; slot < g->body->tile->n_blocks; slot++) {
    ir_branch present = if_present(g, slot);
    for (int i = 0; i < count; i++) {
      if (!gained[slot * count + i].hi.ptr) continue;
      ir_value at = ir_pointer(b, sum_at(g, i, slot));
      two_float_store(b, two_float_add(b, two_float_load(b, at), gained[slot * count + i]), at);
    }
    ir_end_if(b, present);
  }
  ir_end_if(b, wanted);
}

/* Which of the row's threads this one is: those of a head's parts are counted one part after the other. */
static ir_value share_of(gpu_gains *g) {
  ir *b = g->body->b;
  const thread_tile *all = g->body->entry->tile;
  int before = thread_tile_units(all) - thread_tile_units(g->body->tile);
  ir_value share = g->body->exprs.unit;
  if (before) share = add(b, share, i32(b, before));
  if (g->body->per_head) share = add(b, scaled(b, g->body->exprs.head, thread_tile_units(all)), share);
  return share;
}

/* Sums the gradient of a coordinate over the thread's blocks. The axis is one of the row's description, not of the
 * part's, which may have fewer. gained NULL: nothing. */
static two_float sum_of_axis(gpu_gains *g, int axis, const two_float *gained) {
  ir *b = g->body->b;
  const spec_part *part = g->body->p->part;
  int axes = g->body->p->spec->n_axes, own = axis;
  for (int i = 0; part && i < axes; i++)
    if (part->axis[i] == axis) own = i;
  bool gains = gained && (!part || part->axis[own] == axis);
  two_float sum = two_float_const(b, 0);
  for (int slot = 0; gains && slot < g->body->tile->n_blocks; slot++) {
    two_float x = gained[slot * axes + own];
    ir_value present = g->body->rows.block_present[slot];
    if (x.hi.ptr && present.ptr) x = two_float_select(b, present, x, two_float_const(b, 0));
    if (x.hi.ptr) sum = two_float_add(b, sum, x);
  }
  return sum;
}

/* Sums over the thread's blocks, to a place of its own. */
static void give_positions(gpu_gains *g, const two_float *gained) {
  ir *b = g->body->b;
  const spec *whole = g->row ? g->body->program->spec : g->body->p->spec;
  ir_value share = share_of(g);
  ir_branch wanted = if_wanted(g, PEGEN_PTX_SHARES);
  ir_value shares = wide(b, scaled(b, gpu_heads(g->body), thread_tile_units(g->body->entry->tile)));
  ir_value row = add(b, mul(b, wide(b, g->item), shares), wide(b, share));
  ir_value at = add(b, g->own[PEGEN_PTX_SHARES], mul(b, row, i64(b, (int64_t)whole->n_axes * NUMBER)));
  for (int axis = 0; axis < whole->n_axes; axis++) {
    two_float sum = sum_of_axis(g, axis, gained);
    two_float_store(b, sum, ir_offset_const(b, ir_pointer(b, at), (int64_t)axis * NUMBER));
  }
  ir_end_if(b, wanted);
}

/* The values of expressions for every block of the thread; null where they are 0. */
static two_float *values_of(gpu_gains *g, const expr *const *exprs, int count) {
  const thread_tile *t = g->body->tile;
  two_float *values = arena_array(g->body->rows.memory, two_float, t->n_blocks * count + 1);
  for (int slot = 0; slot < t->n_blocks; slot++)
    for (int i = 0; i < count; i++)
      if (!expr_is_const(exprs[i], 0)) values[slot * count + i] = emit_thread_value(&g->body->exprs, exprs[i], slot);
  return values;
}

/* What elements of the row's inputs gain of each block, leaf by leaf (NAME_encode_gradient_inputs adds it up). */
static void give_inputs(gpu_gains *g, const two_float *gained, int count) {
  ir *b = g->body->b;
  int64_t blocks = g->body->p->spec->n_blocks, row_bytes = count * blocks * 4;
  ir_branch wanted = if_wanted(g, PEGEN_PTX_INPUT_SHARES);
  ir_value row = add(b, mul(b, wide(b, g->item), wide(b, gpu_heads(g->body))), wide(b, g->body->exprs.head));
  ir_value at = add(b, g->own[PEGEN_PTX_INPUT_SHARES], mul(b, row, i64(b, row_bytes)));
  for (int slot = 0; slot < g->body->tile->n_blocks; slot++) {
    ir_branch present = if_present(g, slot);
    ir_value block = ir_pointer(b, add(b, at, wide(b, scaled(b, block_of(g, slot), 4))));
    for (int i = 0; i < count; i++) {
      two_float x = gained[slot * count + i];
      ir_value value = x.hi.ptr ? two_float_narrow(b, x) : ir_float(b, b->f32, 0);
      ir_store(b, value, ir_offset_const(b, block, i * blocks * 4), 4, false);
    }
    ir_end_if(b, present);
  }
  ir_end_if(b, wanted);
}

static int input_gains(const gpu_gains *g, const expr **gradients) {
  int count = g->of->n_row_inputs[TORQUE_OF_Y];
  for (int i = 0; i < count; i++) gradients[i] = g->of->of_row_input[TORQUE_OF_Y][i].gradient;
  return count;
}

int gpu_gain_roots(const gpu_gains *g, const expr **roots) {
  const plan_gradient *of = g->of;
  int count = 0;
  if (!of->token) return 0;
  for (int i = 0; i < of->n_boundaries; i++) roots[count++] = of->of_boundary[TORQUE_OF_Y][i];
  for (int axis = 0; axis < g->body->p->spec->n_axes; axis++) roots[count++] = of->of_position[TORQUE_OF_Y][axis];
  return count + input_gains(g, roots + count);
}

void gpu_add_gains(gpu_gains *g) {
  const plan_gradient *of = g->of;
  int axes = g->body->p->spec->n_axes;
  if (of->n_boundaries) add_to_sums(g, values_of(g, of->of_boundary[TORQUE_OF_Y], of->n_boundaries));
  if (of->has_positions) give_positions(g, values_of(g, of->of_position[TORQUE_OF_Y], axes));
  else if (g->row && plan_gradient_has_positions(g->row)) give_positions(g, NULL);
  const expr **gradients = arena_array(g->body->rows.memory, const expr *, of->n_row_inputs[TORQUE_OF_Y] + 1);
  int inputs = input_gains(g, gradients);
  if (inputs) give_inputs(g, values_of(g, gradients, inputs), inputs);
}

/* ---- what matrices gain ---- */

ir_value gpu_matrix_sums(gpu_gains *g, const program_op *matrix, int k, ir_value block) {
  gpu_body *t = g->body;
  ir *b = t->b;
  int heads = t->per_head ? t->p->spec->heads : 1, blocks = matrix->blocks.count,
      padded = team_padded(matrix->blocks.size);
  if (t->per_head) block = add(b, scaled(b, t->exprs.head, blocks), block);
  ir_value generator = add(b, scaled(b, g->chunk, matrix->skew.count), i32(b, k));
  ir_value at = add(b, mul(b, wide(b, generator), i64(b, (int64_t)heads * blocks)), wide(b, block));
  at = mul(b, at, i64(b, (int64_t)padded * padded * NUMBER));
  return ir_pointer(b, add(b, g->own[PEGEN_PTX_MATRIX_SUMS], at));
}

ir_branch gpu_if_matrices_wanted(gpu_gains *g, ir_value stores) {
  ir *b = g->body->b;
  return ir_if(b, both(b, stores, ir_compare_int(b, "ne", g->own[PEGEN_PTX_MATRIX_SUMS], i64(b, 0))));
}
