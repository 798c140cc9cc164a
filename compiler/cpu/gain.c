/* cpu/gain: see cpu/gain.h. */
#include "cpu/gain.h"

#include "base/diag.h"
#include "mlir/arith.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64 };

/* ---- names ---- */

const cpu_target *emit_gradient_target(arena *a, const cpu_target *target) {
  cpu_target *grad = arena_new(a, cpu_target);
  *grad = *target;
  grad->suffix = arena_printf(a, "%s_grad", target->suffix);
  return grad;
}

const char *emit_gradient_name(arena *a, const cpu_target *target, int dtype) {
  return arena_printf(a, "encode_%s_%s", target->suffix, number_name(dtype));
}

const char *emit_scatter_name(arena *a, const cpu_target *target) {
  return arena_printf(a, "scatter_%s", target->suffix);
}

const char *emit_gain_name(const gradient_code *g, torque_frame frame) {
  return arena_printf(g->memory, "gain_%s_%s", g->target->suffix, frame == TORQUE_OF_X && g->frames_differ ? "x" : "y");
}

/* ---- a row's torques ---- */

int emit_torque_slots(const gradient_code *g, const plan_tile *t) { return g->of->pairs->n_terms * t->n_vectors; }

static ir_value slot_at(ir *b, const plan_tile *t, ir_value at, int term, int vector) {
  return ir_offset_const(b, at, ((int64_t)term * t->n_vectors + vector) * t->width * 4);
}

static ir_value multiply_add(row_emitter *r, ir_value x, ir_value y, ir_value sum) {
  if (r->target->has_fma) return ir_fma(r->b, x, y, sum);
  return ir_op2(r->b, "arith.addf", ir_op2(r->b, "arith.mulf", x, y), sum);
}

/* Sums that stay in registers over the heads of a token; more of them are in memory from row to row. */
enum { MOST_HELD = 32 };

bool emit_holds_torques(const gradient_code *g, const plan_tile *t) { return emit_torque_slots(g, t) <= MOST_HELD; }

void emit_load_torques(const gradient_code *g, row_emitter *r, ir_value at, ir_value *sums) {
  for (int i = 0; i < emit_torque_slots(g, r->t); i++)
    sums[i] = ir_load(r->b, ir_vector(r->b, r->t->width, r->b->f32), slot_at(r->b, r->t, at, 0, i), 4);
}

void emit_store_torques(const gradient_code *g, row_emitter *r, ir_value at, const ir_value *sums) {
  for (int i = 0; i < emit_torque_slots(g, r->t); i++) ir_store(r->b, sums[i], slot_at(r->b, r->t, at, 0, i), 4, false);
}

void emit_row_torques(const gradient_code *g, row_emitter *r, int group, const gradient_values *v,
                      const row_vectors *gradient, const row_vectors *turned, const row_vectors *y, ir_value at,
                      ir_value *sums) {
  ir *b = r->b;
  MlirType type = ir_vector(b, r->t->width, b->f32);
  for (int j = 0; j < r->t->n_vectors; j++) {
    if (r->t->group[j] != group) continue;
    ir_value with = gradient->lanes[j];
    if (turned) with = ir_select(b, v->from_input, turned->lanes[j], with);
    for (int term = 0; term < g->of->pairs->n_terms; term++) {
      ir_value slot = slot_at(b, r->t, at, term, j), *held = sums ? &sums[term * r->t->n_vectors + j] : NULL;
      ir_value other = y ? emit_vector_permuted(r, g->of->pairs, y, term, j) : with;
      if (!other.ptr) continue;
      ir_value sum = held ? *held : ir_load(b, type, slot, 4);
      sum = y ? multiply_add(r, with, other, sum) : ir_op2(b, "arith.addf", sum, with);
      if (held) *held = sum;
      else ir_store(b, sum, slot, 4, false);
    }
  }
}

/* ---- from channels in the lanes to blocks in the lanes ---- */

/* Which term holds the product of components (row, column). */
static int term_of(const plan *pairs, int row, int column) {
  int n = pairs->spec->n_components;
  for (int term = 0; term < pairs->n_terms; term++)
    if (pairs->source[term * n + row] == column) return term;
  diag_bug("cpu/gain", "no term has components %d and %d", row, column);
}

/* A chunk's sums of one pair of components. */
static ir_value pair_of_chunk(const gradient_code *g, row_emitter *r, ir_value *loaded, ir_value at, int chunk,
                              int term, int component) {
  const plan_tile *t = r->t;
  const spec *s = r->p->spec;
  gather_request request = {.width = t->chunk_width[chunk]};
  (void)g;
  for (int i = 0; i < request.width; i++) {
    int block = t->chunk_begin[chunk] + i;
    request.from[i] = -1;
    if (block >= s->n_blocks) continue;
    int channel = s->channel[component * s->n_blocks + block], vector = emit_vector_of(t, channel, 0);
    ir_value *sums = &loaded[term * t->n_vectors + vector];
    if (!sums->ptr) *sums = ir_load(r->b, ir_vector(r->b, t->width, r->b->f32), slot_at(r->b, t, at, term, vector), 4);
    request.from[i] = emit_gather_source(&request, *sums);
    request.lane[i] = channel - t->start[vector];
  }
  return emit_gather(r->b, &request);
}

/* tau_k of a chunk: 0 beyond the last block. */
static ir_value torque_of_chunk(const gradient_code *g, row_emitter *r, ir_value *loaded, ir_value at, int chunk,
                                int k) {
  ir *b = r->b;
  const plan_gradient *of = g->of;
  int width = r->t->chunk_width[chunk];
  ir_value sum = {NULL};
  if (plan_is_sum(r->p)) sum = pair_of_chunk(g, r, loaded, at, chunk, 0, k);
  for (int i = 0; !plan_is_sum(r->p) && i < of->basis.element[k].n_entries; i++) {
    const torque_entry *e = &of->basis.element[k].entry[i];
    ir_value x = pair_of_chunk(g, r, loaded, at, chunk, term_of(of->pairs, e->row, e->column), e->row);
    if (!sum.ptr) sum = e->sign < 0 ? ir_op1(b, "arith.negf", x) : x;
    else sum = ir_op2(b, e->sign < 0 ? "arith.subf" : "arith.addf", sum, x);
  }
  if (!sum.ptr) return ir_float(b, ir_vector(b, width, b->f64), 0);
  bool mask[GATHER_MAX_LANES], all = true;
  for (int i = 0; i < width; i++) all &= mask[i] = r->t->chunk_begin[chunk] + i < r->p->spec->n_blocks;
  if (!all) sum = ir_select(b, ir_bools(b, width, mask), sum, ir_float(b, ir_type(sum), 0));
  return ir_cast(b, "arith.extf", sum, b->f64);
}

static void emit_torques(const gradient_code *g, row_emitter *r, ir_value at, ir_value tau) {
  ir_value *loaded = arena_array(g->memory, ir_value, emit_torque_slots(g, r->t));
  for (int chunk = 0; chunk < r->t->n_chunks; chunk++)
    for (int k = 0; k < g->of->n_torques; k++)
      ir_store(r->b, torque_of_chunk(g, r, loaded, at, chunk, k),
               ir_offset_const(r->b, tau, ((int64_t)k * r->p->lanes + r->t->chunk_begin[chunk]) * 8), 8, false);
}

/* ---- a token ---- */

#define FIELD_OF(b, loop, name, type) \
  ir_load((b), (b)->type, ir_offset_const((b), (loop), offsetof(pegen_gradient_loop, name)), 8)

gradient_values emit_load_gradient(const gradient_code *g, ir *b, ir_value loop) {
  const plan *p = g->of->token;
  return (gradient_values){
      .from_input = ir_compare_int(b, "ne", FIELD_OF(b, loop, from_input, i64), i64(b, 0)),
      .sums = FIELD_OF(b, loop, sums, i64),
      .sums_stride = FIELD_OF(b, loop, sums_stride, i64),
      .prepared = FIELD_OF(b, loop, prepared, i64),
      .prepared_stride = FIELD_OF(b, loop, prepared_stride, i64),
      .positions = FIELD_OF(b, loop, positions, i64),
      .tau = ir_alloca(b, (int64_t)g->of->n_torques * p->lanes * 8 + CACHE_LINE, CACHE_LINE),
      .gained = ir_alloca(b, p->spec->n_axes * 8, 8),
  };
}

static void call_token(const gradient_code *g, ir *b, torque_frame frame, const ir_value *arguments) {
  ir_call(b, emit_gain_name(g, frame), 6, arguments);
}

void emit_gradient_of_token(const gradient_code *g, row_emitter *r, const gradient_values *v, ir_value at,
                            ir_value position, ir_value head) {
  ir *b = r->b;
  emit_torques(g, r, at, v->tau);
  ir_value prepared = ir_pointer(b, add(b, v->prepared, mul(b, head, v->prepared_stride)));
  ir_value wanted = ir_compare_int(b, "ne", v->sums, i64(b, 0));
  ir_value sums = ir_select(b, wanted, add(b, v->sums, mul(b, head, v->sums_stride)), i64(b, 0));
  ir_value arguments[] = {position, prepared, v->tau, sums, v->positions, v->gained};
  if (!g->frames_differ) {
    call_token(g, b, TORQUE_OF_Y, arguments);
    return;
  }
  ir_branch branch = ir_if(b, v->from_input);
  call_token(g, b, TORQUE_OF_X, arguments);
  ir_else(b, &branch);
  call_token(g, b, TORQUE_OF_Y, arguments);
  ir_end_if(b, branch);
}

void emit_begin_position_gradient(const gradient_code *g, ir *b, const gradient_values *v) {
  for (int axis = 0; axis < g->of->token->spec->n_axes; axis++)
    ir_store(b, ir_float(b, b->f64, 0), ir_offset_const(b, v->gained, axis * 8), 8, false);
}

void emit_end_position_gradient(const gradient_code *g, ir *b, const gradient_values *v, ir_value loop,
                                ir_value token) {
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", v->positions, i64(b, 0)));
  ir_value arguments[] = {loop, token, i64(b, g->of->token->spec->n_axes), v->gained};
  ir_call(b, "pegen_driver_position_gradient", 4, arguments);
  ir_end_if(b, branch);
}
