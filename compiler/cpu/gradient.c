/* cpu/gradient: see cpu/gradient.h. */
#include "cpu/gradient.h"

#include "cpu/backward.h"
#include "cpu/encode.h"
#include "cpu/place.h"
#include "cpu/schedule.h"
#include "mlir/arith.h"

#include "kernel/loop.h"

#include <string.h>

/* ---- expressions: blocks in the lanes ---- */

/* What is emitted of each chunk: for which part, in which frame, of which arguments of the function. */
typedef struct gradient_function {
  const gradient_code *g;
  torque_frame frame;
  ir_value arguments[7];
} gradient_function;

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
  ir_store(e->b, add(e->b, sum, x), at, 8, false);
}

/* A token's leaves: coordinates, what is prepared of its head, its torques. */
static void connect(const chunk_walk *w, chunk_emitter *e, const gradient_code *g, const ir_value *arguments,
                    ir_value *positions) {
  ir_value own[PEGEN_MAX_PLACE + SPEC_MAX_INPUTS];
  emit_load_place(w->b, w->whole, arguments[0], positions);
  if (w->p->part) {
    emit_place_of_part(w, positions, own);
    memcpy(positions, own, sizeof own);
  }
  e->positions = positions;
  e->input = emit_place_inputs(w->p->spec, positions);
  e->input_dtype = NUMBER_F32;
  e->prepared = ir_offset_const(w->b, arguments[1], w->prepared);
  e->cotangents = ir_offset_const(w->b, arguments[2], (int64_t)g->torques * w->p->lanes * 8);
}

/* Lanes beyond the last block are left out. */
static ir_value sum_of_blocks(const chunk_walk *w, const chunk_emitter *e, ir_value lanes) {
  ir_value sum = {NULL};
  for (int i = 0; i < e->width && e->begin + i < w->p->spec->n_blocks; i++) {
    ir_value lane = ir_extract(w->b, lanes, i);
    sum = sum.ptr ? add(w->b, sum, lane) : lane;
  }
  return sum;
}

/* Adds what a leaf's element gains in each block of the chunk to what the row's inputs do, at `gained`. */
static void add_to_inputs(const chunk_walk *w, chunk_emitter *e, const expr *leaf, ir_value lanes, ir_value gained) {
  ir *b = w->b;
  const spec *s = w->p->spec;
  int64_t first = emit_gained_input(s, leaf->index);
  if (!(leaf->depends & DEPENDS_BLOCK)) {
    ir_value sum = sum_of_blocks(w, e, lanes);
    add_to(e, ir_offset_const(b, gained, (first + leaf->offsets[0]) * 8), sum);
    return;
  }
  if (e->shift.ptr) gained = ir_offset(b, gained, mul(b, e->shift, i64(b, 8)));
  bool in_order = e->begin + e->width <= s->n_blocks; /* of a loop over chunks they are */
  for (int i = 1; i < e->width && in_order; i++) in_order = leaf->offsets[e->begin + i] == leaf->offsets[e->begin] + i;
  if (in_order) {
    add_to(e, ir_offset_const(b, gained, (first + leaf->offsets[e->begin]) * 8), lanes);
    return;
  }
  for (int i = 0; i < e->width && e->begin + i < s->n_blocks; i++) {
    ir_value at = ir_offset_const(b, gained, (first + leaf->offsets[e->begin + i]) * 8);
    ir_value lane = ir_extract(b, lanes, i);
    add_to(e, at, lane);
  }
}

static void inputs_of_chunk(const chunk_walk *w, chunk_emitter *e, const gradient_function *f) {
  ir *b = w->b;
  int count = f->g->of->n_row_inputs[f->frame];
  const adjoint_scatter *of = f->g->of->of_row_input[f->frame];
  ir_value *lanes = arena_array(w->memory, ir_value, count + 1);
  for (int i = 0; i < count; i++) lanes[i] = wide(e, of[i].gradient);
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", f->arguments[6], i64(b, 0)));
  for (int i = 0; i < count; i++) add_to_inputs(w, e, of[i].leaf, lanes[i], f->arguments[5]);
  ir_end_if(b, branch);
}

/* Both at once, for they share most of their expressions. */
static void token_of_chunk(const chunk_walk *w, chunk_emitter *e, const void *context) {
  ir *b = w->b;
  const gradient_function *f = context;
  const plan_gradient *of = f->g->of;
  const ir_value *arguments = f->arguments;
  torque_frame frame = f->frame;
  int n_axes = w->p->spec->n_axes;
  ir_value positions[PEGEN_MAX_PLACE + SPEC_MAX_INPUTS], of_axis[SPEC_MAX_AXES] = {{NULL}};
  ir_value *of_boundary = arena_array(w->memory, ir_value, of->n_boundaries + 1);
  connect(w, e, f->g, arguments, positions);
  for (int i = 0; i < of->n_boundaries; i++)
    if (!expr_is_const(of->of_boundary[frame][i], 0)) of_boundary[i] = wide(e, of->of_boundary[frame][i]);
  for (int axis = 0; axis < n_axes; axis++)
    if (!expr_is_const(of->of_position[frame][axis], 0)) of_axis[axis] = wide(e, of->of_position[frame][axis]);
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", arguments[3], i64(b, 0)));
  for (int i = 0; i < of->n_boundaries; i++)
    if (of_boundary[i].ptr) add_to(e, row_at(e, ir_pointer(b, arguments[3]), f->g->sums + i), of_boundary[i]);
  ir_end_if(b, branch);
  branch = ir_if(b, ir_compare_int(b, "ne", arguments[4], i64(b, 0)));
  for (int axis = 0; axis < n_axes; axis++)
    if (of_axis[axis].ptr) {
      ir_value sum = sum_of_blocks(w, e, of_axis[axis]);
      add_to(e, ir_offset_const(b, arguments[5], (w->p->part ? w->p->part->axis[axis] : axis) * 8), sum);
    }
  ir_end_if(b, branch);
  if (w->p->of_rows) inputs_of_chunk(w, e, f);
}

static void scatter_of_chunk(const chunk_walk *w, chunk_emitter *e, const void *context) {
  const gradient_function *f = context;
  const gradient_code *g = f->g;
  const ir_value *arguments = f->arguments;
  e->has_leaves = true;
  e->leaves = ir_offset_const(w->b, arguments[0], w->leaves);
  e->cotangents = ir_offset_const(w->b, arguments[1], (int64_t)g->sums * w->p->lanes * 8);
  e->first_cotangent = TORQUE_MOST;
  for (int i = 0; i < g->of->n_scatters; i++)
    ir_store(w->b, wide(e, g->of->scatter[i].gradient), row_at(e, arguments[2], g->scatters + i), 8, false);
}

static void emit_of_chunks(const chunk_walk *w, const gradient_code *g, torque_frame frame, const char *name,
                           const char *types, chunk_body *body) {
  ir *b = w->b;
  gradient_function f = {g, frame, {{NULL}}};
  ir_open(b, name, types, f.arguments);
  for (; w; w = w->next, f.g = f.g->next) emit_each_chunk(w, body, &f);
  ir_return(b);
}

/* ---- the functions of a target ---- */

/* What is computed of the parts' tokens, or once: a walk for each of g. */
typedef const plan *plan_of(const plan_gradient *g);

static const plan *of_token(const plan_gradient *g) { return g->token; }
static const plan *of_leaves(const plan_gradient *g) { return g->leaves; }

static const chunk_walk *walks_of(ir *b, arena *a, const gradient_code *g, plan_of *of, const cpu_target *target) {
  const plan *plans[SPEC_MAX_PARTS];
  const spec *s = g->whole;
  int count = 0;
  for (; g; g = g->next) plans[count++] = of(g->of);
  row_code row = emit_row_code(a, s, plans, count, target);
  return emit_walks_of(b, a, &row, target);
}

void emit_gradient_expressions(ir *b, arena *a, const gradient_code *g) {
  const chunk_walk *token = walks_of(b, a, g, of_token, g->target);
  bool has_leaves = false;
  for (const gradient_code *part = g; part; part = part->next) has_leaves |= part->of->token->n_leaves > 0;
  if (has_leaves) emit_prepare(token);
  for (int frame = 0; frame <= g->frames_differ; frame++)
    emit_of_chunks(token, g, (torque_frame)frame, emit_gain_name(g, (torque_frame)frame),
                   token->p->of_rows ? "pppiipi" : "pppiip", token_of_chunk);
  emit_gradient_scatter(b, a, g);
}

void emit_gradient_scatter(ir *b, arena *a, const gradient_code *g) {
  bool some = false;
  for (const gradient_code *part = g; part; part = part->next) some |= part->of->n_boundaries > 0;
  if (!some) return;
  cpu_target *once = arena_new(a, cpu_target); /* tables have names of their own */
  *once = *g->target;
  once->suffix = arena_printf(a, "%s_once", g->target->suffix);
  emit_of_chunks(walks_of(b, a, g, of_leaves, once), g, TORQUE_OF_Y, emit_scatter_name(a, g->target), "ppp",
                 scatter_of_chunk);
}

void emit_gradient(ir *b, arena *a, const program *backward, const plan *const *plans, const plan_gradient_row *of,
                   const cpu_target *target, unsigned dtypes) {
  const spec *s = plans[0]->part ? backward->spec : plans[0]->spec;
  const gradient_code *g = emit_gradient_codes(a, s, of, target);
  const cpu_target *back = emit_backward_target(a, target); /* whose rotors have the transposed matrices */
  const plan *turned[SPEC_MAX_PARTS];
  for (int i = 0; i < of->n_parts; i++) turned[i] = plan_is_sum(plans[i]) ? plans[i] : plan_transpose(a, plans[i]);
  row_code row = emit_row_code(a, s, turned, of->n_parts, target);
  emit_gradient_expressions(b, a, g);
  emit_spread(g, b, &row);
  emit_collect_torques(g, b);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (dtypes & 1u << dtype)
      emit_encode(b, a, &(encode_kind){cpu_schedule(a, backward), &row, back, dtype, dtype, false, false, g, false, 0});
}
