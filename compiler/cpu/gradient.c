/* cpu/gradient: see cpu/gradient.h. */
#include "cpu/gradient.h"

#include "cpu/backward.h"
#include "cpu/encode.h"
#include "cpu/schedule.h"
#include "mlir/arith.h"

#include "kernel/loop.h"

/* ---- expressions: blocks in the lanes ---- */

typedef void chunk_body(const chunk_walk *w, chunk_emitter *e, const gradient_code *g, torque_frame frame,
                        const ir_value *arguments);

static void each_chunk(const chunk_walk *w, const gradient_code *g, torque_frame frame, const ir_value *arguments,
                       chunk_body *body) {
  chunk_emitter e;
  if (w->t->n_looped) {
    ir_loop loop = emit_begin_chunks(w, &e);
    body(w, &e, g, frame, arguments);
    ir_end_for(w->b, loop);
  }
  for (int chunk = w->t->n_looped; chunk < w->t->n_chunks; chunk++) {
    e = emit_chunk(w, chunk);
    body(w, &e, g, frame, arguments);
  }
}

/* Where the chunk's part of row i of float64 [rows][lanes] lies. */
static ir_value row_at(const chunk_emitter *e, ir_value rows, int i) {
  ir *b = e->b;
  ir_value at = ir_offset_const(b, rows, ((int64_t)i * e->p->lanes + e->begin) * 8);
  return e->shift.ptr ? ir_offset(b, at, mul(b, e->shift, i64(b, 8))) : at;
}

/* An expression on all lanes as float64. */
static ir_value wide(chunk_emitter *e, const expr *x) {
  ir_value v = emit_expr_lanes(&e->walker, x);
  if (x->is_f32) v = ir_cast(e->b, "arith.extf", v, e->b->f64);
  return v;
}

static void add_to(chunk_emitter *e, ir_value at, ir_value x) {
  ir_value sum = ir_load(e->b, ir_type(x), at, 8);
  ir_store(e->b, ir_op2(e->b, "arith.addf", sum, x), at, 8, false);
}

/* A token's leaves: coordinates, what is prepared of its head, its torques. */
static void connect(const chunk_walk *w, chunk_emitter *e, const ir_value *arguments, ir_value *positions) {
  for (int axis = 0; axis < emit_place_numbers(w->p->spec); axis++)
    positions[axis] = ir_load(w->b, w->b->f64, ir_offset_const(w->b, arguments[0], axis * 8), 8);
  e->positions = positions;
  e->prepared = arguments[1];
  e->cotangents = arguments[2];
}

/* Lanes beyond the last block are left out. */
static ir_value sum_of_blocks(const chunk_walk *w, const chunk_emitter *e, ir_value lanes) {
  ir_value sum = {NULL};
  for (int i = 0; i < e->width && e->begin + i < w->p->spec->n_blocks; i++) {
    ir_value lane = ir_extract(w->b, lanes, i);
    sum = sum.ptr ? ir_op2(w->b, "arith.addf", sum, lane) : lane;
  }
  return sum;
}

/* Both at once, for they share most of their expressions. */
static void token_of_chunk(const chunk_walk *w, chunk_emitter *e, const gradient_code *g, torque_frame frame,
                           const ir_value *arguments) {
  ir *b = w->b;
  const plan_gradient *of = g->of;
  int n_axes = w->p->spec->n_axes;
  ir_value positions[PEGEN_MAX_PLACE], of_axis[SPEC_MAX_AXES] = {{NULL}};
  ir_value *of_boundary = arena_array(w->memory, ir_value, of->n_boundaries + 1);
  connect(w, e, arguments, positions);
  for (int i = 0; i < of->n_boundaries; i++)
    if (!expr_is_const(of->of_boundary[frame][i], 0)) of_boundary[i] = wide(e, of->of_boundary[frame][i]);
  for (int axis = 0; axis < n_axes; axis++)
    if (!expr_is_const(of->of_position[frame][axis], 0)) of_axis[axis] = wide(e, of->of_position[frame][axis]);
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", arguments[3], i64(b, 0)));
  for (int i = 0; i < of->n_boundaries; i++)
    if (of_boundary[i].ptr) add_to(e, row_at(e, ir_pointer(b, arguments[3]), i), of_boundary[i]);
  ir_end_if(b, branch);
  branch = ir_if(b, ir_compare_int(b, "ne", arguments[4], i64(b, 0)));
  for (int axis = 0; axis < n_axes; axis++)
    if (of_axis[axis].ptr) {
      ir_value sum = sum_of_blocks(w, e, of_axis[axis]);
      add_to(e, ir_offset_const(b, arguments[5], axis * 8), sum);
    }
  ir_end_if(b, branch);
}

static void scatter_of_chunk(const chunk_walk *w, chunk_emitter *e, const gradient_code *g, torque_frame frame,
                             const ir_value *arguments) {
  (void)frame;
  e->has_leaves = true;
  e->leaves = arguments[0];
  e->cotangents = arguments[1];
  e->first_cotangent = TORQUE_MOST;
  for (int i = 0; i < g->of->n_scatters; i++)
    ir_store(w->b, wide(e, g->of->scatter[i].gradient), row_at(e, arguments[2], i), 8, false);
}

static void emit_of_chunks(const chunk_walk *w, const gradient_code *g, torque_frame frame, const char *name, int count,
                           chunk_body *body) {
  MlirType types[] = {w->b->ptr, w->b->ptr, w->b->ptr, w->b->i64, w->b->i64, w->b->ptr};
  ir_value arguments[6];
  ir_function(w->b, name, true, (MlirType){NULL}, count, types, arguments);
  each_chunk(w, g, frame, arguments, body);
  ir_return(w->b);
}

/* ---- the functions of a target ---- */

void emit_gradient_expressions(ir *b, arena *a, const gradient_code *g) {
  const plan_gradient *of = g->of;
  int lanes = g->target->lanes;
  chunk_walk token = emit_chunks_of(b, a, of->token, plan_tile_build(a, of->token, lanes), g->target);
  if (of->token->n_leaves > 0) emit_prepare(&token);
  for (int frame = 0; frame <= g->frames_differ; frame++)
    emit_of_chunks(&token, g, (torque_frame)frame, emit_gain_name(g, (torque_frame)frame), 6, token_of_chunk);
  emit_gradient_scatter(b, a, g);
}

void emit_gradient_scatter(ir *b, arena *a, const gradient_code *g) {
  const plan_gradient *of = g->of;
  if (of->n_boundaries == 0) return;
  cpu_target *once = arena_new(a, cpu_target); /* tables have names of their own */
  *once = *g->target;
  once->suffix = arena_printf(a, "%s_once", g->target->suffix);
  chunk_walk leaves = emit_chunks_of(b, a, of->leaves, plan_tile_build(a, of->leaves, g->target->lanes), once);
  emit_of_chunks(&leaves, g, TORQUE_OF_Y, emit_scatter_name(a, g->target), 3, scatter_of_chunk);
}

void emit_gradient(ir *b, arena *a, const program *backward, const plan *p, const cpu_target *target, unsigned dtypes) {
  const plan_gradient *of = plan_gradient_build(a, p);
  if (!of) return;
  gradient_code g = emit_gradient_code(a, of, target);
  const cpu_target *back = emit_backward_target(a, target); /* whose rotors have the transposed matrices */
  const plan *turned = plan_is_sum(p) ? p : plan_transpose(a, p);
  const plan_tile *t = plan_tile_build(a, turned, target->lanes);
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  emit_gradient_expressions(b, a, &g);
  emit_spread(&g, b, turned, t);
  emit_collect_torques(&g, b);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype) emit_encode_gradient(b, a, cpu_schedule(a, backward), turned, t, back, dtype, &g);
  b->target_cpu = b->target_features = NULL;
}
