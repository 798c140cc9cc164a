/* cpu/gain: see cpu/gain.h. */
#include "cpu/gain.h"

#include "base/diag.h"
#include "cpu/product.h"
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

const char *emit_gain_name(const gradient_code *g, torque_frame frame) {
  return arena_printf(g->memory, "gain_%s_%s", g->target->suffix, frame == TORQUE_OF_X && g->frames_differ ? "x" : "y");
}

static bool differ(const plan_gradient *of) {
  bool differ = false;
  for (int i = 0; i < of->n_boundaries; i++) differ = differ || of->of_boundary[0][i] != of->of_boundary[1][i];
  for (int i = 0; i < of->token->spec->n_axes; i++) differ = differ || of->of_position[0][i] != of->of_position[1][i];
  differ = differ || of->n_row_inputs[0] != of->n_row_inputs[1];
  for (int i = 0; i < of->n_row_inputs[0] && !differ; i++)
    differ = of->of_row_input[0][i].gradient != of->of_row_input[1][i].gradient;
  return differ;
}

/* Returns the gradient code that the functions of a target have. */
static gradient_code emit_gradient_code(arena *a, const plan_gradient *of, const cpu_target *target) {
  return (gradient_code){.memory = a,
                         .of = of,
                         .target = emit_gradient_target(a, target),
                         .frames_differ = differ(of),
                         .whole = of->token->spec};
}

const gradient_code *emit_gradient_codes(arena *a, const spec *s, const plan_gradient_row *of,
                                         const cpu_target *target) {
  gradient_code *codes = arena_array(a, gradient_code, of->n_parts), *last = NULL;
  bool frames_differ = false;
  int torques = 0, sums = 0, scatters = 0, count = 0;
  for (int i = 0; i < of->n_parts; i++) {
    const plan_gradient *g = of->part[i];
    if (!g) continue;
    gradient_code *code = &codes[count++];
    *code = emit_gradient_code(a, g, target);
    code->whole = s;
    code->part = i;
    code->torques = torques;
    code->sums = sums;
    code->scatters = scatters;
    torques += g->n_torques;
    sums += g->n_boundaries;
    scatters += g->n_scatters;
    frames_differ = frames_differ || code->frames_differ;
    if (last) last->next = code;
    last = code;
  }
  for (int i = 0; i < count; i++) codes[i].frames_differ = frames_differ;
  return codes;
}

/* Counts the torques of all of a list. */
static int emit_all_torques(const gradient_code *g) {
  int count = 0;
  for (; g; g = g->next) count += g->of->n_torques;
  return count;
}

/* ---- a row's torques ---- */

int emit_torque_slots(const gradient_code *g, const plan_tile *t) { return g->of->pairs->n_terms * t->n_vectors; }

int64_t emit_torque_bytes(const gradient_code *g, const plan_tile *t) {
  return (int64_t)emit_torque_slots(g, t) * t->width * 4;
}

int64_t emit_row_torque_bytes(const gradient_code *g, const row_code *row) {
  int64_t bytes = 0;
  for (; g; g = g->next) bytes += emit_torque_bytes(g, row->part[g->part].t);
  return bytes;
}

static ir_value slot_at(ir *b, const plan_tile *t, ir_value at, int term, int vector) {
  return ir_offset_const(b, at, ((int64_t)term * t->n_vectors + vector) * t->width * 4);
}

/* Sums that stay in registers over a token's rows of one tensor; more of them are in memory from row to row. */
enum { MOST_HELD = 32 };

int emit_held_torques(const gradient_code *g, const row_code *row) {
  int slots = 0;
  for (; g; g = g->next) slots += emit_torque_slots(g, row->part[g->part].t);
  return slots <= MOST_HELD ? slots : 0;
}

void emit_begin_torques(const gradient_code *g, row_emitter *r, const gradient_values *v, ir_value *held) {
  ir *b = r->b;
  ir_value of_rows = v->of_rows;
  for (; g; g = g->next) {
    const plan_tile *t = r[g->part].t;
    ir_value none = ir_float(b, ir_vector(b, t->width, b->f32), 0);
    int slots = emit_torque_slots(g, t);
    for (int i = 0; i < slots; i++)
      if (held) *held++ = none;
      else ir_store(b, none, slot_at(b, t, of_rows, 0, i), 4, false);
    of_rows = ir_offset_const(b, of_rows, emit_torque_bytes(g, t));
  }
}

void emit_add_torques(const gradient_code *g, row_emitter *r, const gradient_values *v, const ir_value *held,
                      ir_value at) {
  ir *b = r->b;
  ir_value of_rows = v->of_rows;
  for (; g; g = g->next) {
    const plan_tile *t = r[g->part].t;
    MlirType type = ir_vector(b, t->width, b->f32);
    int slots = emit_torque_slots(g, t);
    for (int i = 0; i < slots; i++) {
      ir_value sum = held ? *held++ : ir_load(b, type, slot_at(b, t, of_rows, 0, i), 4);
      ir_value slot = slot_at(b, t, at, 0, i);
      ir_store(b, add(b, ir_load(b, type, slot, 4), sum), slot, 4, false);
    }
    of_rows = ir_offset_const(b, of_rows, emit_torque_bytes(g, t));
    at = ir_offset_const(b, at, emit_torque_bytes(g, t));
  }
}

/* A group's vectors are at hand and no others: pairs must lie in it, as what the rows' matrix mixes does. */
static void check_group(const gradient_code *g, const plan_tile *t, int term, int j) {
  for (int channel = t->start[j]; channel < t->start[j] + t->width; channel++) {
    int other = plan_source(g->of->pairs, term, channel), lane;
    if (other >= 0 && t->group[plan_tile_vector(t, other, j, &lane)] != t->group[j])
      diag_bug("cpu/gain", "channels %d and %d turn together, and their vectors are apart", channel, other);
  }
}

/* What y is multiplied with, of each term and vector of the group, [slots]; null where there is nothing. */
static void permute_group(const gradient_code *g, row_emitter *r, int group, const row_vectors *gradient,
                          ir_value *out) {
  for (int j = 0; j < r->t->n_vectors; j++)
    for (int term = 0; term < g->of->pairs->n_terms && r->t->group[j] == group; term++) {
      check_group(g, r->t, term, j);
      out[term * r->t->n_vectors + j] = emit_vector_permuted(r, g->of->pairs, gradient, term, j);
    }
}

static int gather_known(const ir_value *slots, int n_slots, ir_value *out) {
  int count = 0;
  for (int i = 0; i < n_slots; i++)
    if (slots[i].ptr) out[count++] = slots[i];
  return count;
}

/* What y is multiplied with in either frame. In that of y it is what the gradient's matrix has permuted; a branch a row
 * costs less than permutations of what was chosen. */
static void permute_in_frame(const gradient_code *g, row_emitter *r, int group, const gradient_values *v,
                             const row_vectors *gradient, const row_vectors *turned, ir_value *out) {
  int n_slots = emit_torque_slots(g, r->t);
  ir_value *own = arena_array(r->memory, ir_value, n_slots), value[IR_MAX_RESULTS];
  permute_group(g, r, group, gradient, out);
  int count = 0;
  for (int i = 0; i < n_slots; i++) count += out[i].ptr != NULL;
  if (count > IR_MAX_RESULTS) diag_bug("cpu/gain", "%d permuted vectors in a row", count);
  ir_choice choice = ir_choose_alike(r->b, v->from_input, count, ir_vector(r->b, r->t->width, r->b->f32));
  permute_group(g, r, group, turned, own);
  gather_known(own, n_slots, value);
  ir_choose_else(r->b, &choice, count, value);
  gather_known(out, n_slots, value);
  ir_end_choose(r->b, choice, count, value, value);
  for (int i = 0, k = 0; i < n_slots; i++)
    if (out[i].ptr) out[i] = value[k++];
}

/* sum + x y, or (y null) sum + x, where sums are. */
static void add_product(row_emitter *r, ir_value x, ir_value y, ir_value *held, ir_value at) {
  ir_value sum = held ? *held : ir_load(r->b, ir_type(x), at, 4);
  sum = y.ptr ? emit_multiply_add(r->b, r->target, x, y, sum) : add(r->b, sum, x);
  if (held) *held = sum;
  else ir_store(r->b, sum, at, 4, false);
}

void emit_row_torques(const gradient_code *g, row_emitter *r, int group, const gradient_values *v, ir_value of_rows,
                      const row_vectors *gradient, const row_vectors *turned, const row_vectors *y, ir_value *held) {
  const plan_tile *t = r->t;
  ir_value *with = arena_array(r->memory, ir_value, emit_torque_slots(g, t));
  if (y && torque_is_of_entries(r->p->spec)) permute_group(g, r, group, gradient, with);
  else if (y) permute_in_frame(g, r, group, v, gradient, turned, with);
  for (int j = 0; j < t->n_vectors; j++)
    for (int term = 0; term < g->of->pairs->n_terms && t->group[j] == group; term++) {
      int slot = term * t->n_vectors + j;
      ir_value x = y ? with[slot] : gradient->lanes[j], other = y ? y->lanes[j] : (ir_value){NULL};
      if (x.ptr) add_product(r, x, other, held ? &held[slot] : NULL, slot_at(r->b, t, of_rows, 0, slot));
    }
}

/* ---- from channels in the lanes to blocks in the lanes ---- */

/* Which term holds the product of components (row, column). */
static int term_of(const plan *pairs, int row, int column) {
  int n = pairs->spec->n_components;
  for (int term = 0; term < pairs->n_terms; term++)
    if (pairs->source[term * n + column] == row) return term;
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
    int channel = s->channel[component * s->n_blocks + block],
        vector = plan_tile_vector(t, channel, 0, &request.lane[i]);
    ir_value *sums = &loaded[term * t->n_vectors + vector];
    if (!sums->ptr) *sums = ir_load(r->b, ir_vector(r->b, t->width, r->b->f32), slot_at(r->b, t, at, term, vector), 4);
    request.from[i] = emit_gather_source(&request, *sums);
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
    ir_value x = pair_of_chunk(g, r, loaded, at, chunk, term_of(of->pairs, e->row, e->column), e->column);
    if (!sum.ptr) sum = e->sign < 0 ? ir_op1(b, "arith.negf", x) : x;
    else sum = ir_op2(b, e->sign < 0 ? "arith.subf" : "arith.addf", sum, x);
  }
  if (!sum.ptr) return ir_float(b, ir_vector(b, width, b->f64), 0);
  bool mask[GATHER_MAX_LANES], all = true;
  for (int i = 0; i < width; i++) all &= mask[i] = r->t->chunk_begin[chunk] + i < r->p->spec->n_blocks;
  if (!all) sum = ir_select(b, ir_bools(b, width, mask), sum, ir_float(b, ir_type(sum), 0));
  return ir_cast(b, "arith.extf", sum, b->f64);
}

static const char *spread_name(const gradient_code *g) {
  return arena_printf(g->memory, "spread_%s", g->target->suffix);
}

/* Lanes that other parts' blocks have and this one's do not: tables of torques hold them, too. */
static void clear_rest(const gradient_code *g, ir *b, ir_value tau, int begin, int lanes) {
  while (begin < lanes) {
    int width = g->target->lanes;
    while (width > lanes - begin) width /= 2;
    ir_value none = ir_float(b, ir_vector(b, width, b->f64), 0);
    for (int k = 0; k < g->of->n_torques; k++)
      ir_store(b, none, ir_offset_const(b, tau, ((int64_t)k * lanes + begin) * 8), 8, false);
    begin += width;
  }
}

static void spread_part(const gradient_code *g, row_emitter *r, ir_value at, ir_value tau) {
  ir *b = r->b;
  const plan_tile *t = r->t;
  int lanes = r->p->lanes, last = t->n_chunks - 1;
  ir_value *loaded = arena_array(g->memory, ir_value, emit_torque_slots(g, t));
  for (int chunk = 0; chunk < t->n_chunks; chunk++)
    for (int k = 0; k < g->of->n_torques; k++)
      ir_store(b, torque_of_chunk(g, r, loaded, at, chunk, k),
               ir_offset_const(b, tau, ((int64_t)k * lanes + t->chunk_begin[chunk]) * 8), 8, false);
  clear_rest(g, b, tau, t->chunk_begin[last] + t->chunk_width[last], lanes);
}

void emit_spread(const gradient_code *g, ir *b, const row_code *row) {
  ir_value arguments[2];
  ir_open(b, spread_name(g), "pp", arguments);
  ir_value at = arguments[0];
  for (; g; g = g->next) {
    const plan *p = row->part[g->part].p;
    row_emitter r = {.b = b, .memory = g->memory, .p = p, .t = row->part[g->part].t, .target = g->target};
    spread_part(g, &r, at, ir_offset_const(b, arguments[1], (int64_t)g->torques * p->lanes * 8));
    at = ir_offset_const(b, at, emit_torque_bytes(g, r.t));
  }
  ir_return(b);
}

/* ---- sums of one call to those of all calls (kernel/gradient_table.h) ---- */

static void add_numbers(ir *b, const ir_value *arguments, ir_value at, int width, MlirType element, int64_t bytes) {
  MlirType type = ir_vector(b, width, element);
  ir_value from = ir_load(b, type, ir_offset(b, arguments[0], at), (int)bytes), to = ir_offset(b, arguments[1], at);
  ir_value before = ir_load(b, type, to, (int)bytes);
  ir_store(b, add(b, before, from), to, (int)bytes, false);
}

void emit_collect(ir *b, const cpu_target *target, bool is_f64, int64_t count, const char *name) {
  int64_t bytes = is_f64 ? 8 : 4, width = target->lanes / (is_f64 ? 2 : 1), whole = count / width;
  MlirType element = is_f64 ? b->f64 : b->f32;
  ir_value arguments[2];
  ir_open(b, name, "pp", arguments);
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, whole));
  add_numbers(b, arguments, mul(b, loop.index, i64(b, width * bytes)), (int)width, element, bytes);
  ir_end_for(b, loop);
  for (int64_t i = whole * width; i < count; i++) add_numbers(b, arguments, i64(b, i * bytes), 1, element, bytes);
  ir_return(b);
}

/* ---- a token ---- */

#define FIELD_OF(b, loop, name, type) \
  ir_load((b), (b)->type, ir_offset_const((b), (loop), offsetof(pegen_gradient_loop, name)), 8)

gradient_values emit_load_gradient(const gradient_code *g, ir *b, const row_code *row, ir_value loop) {
  const spec *s = row->spec;
  int64_t tau_bytes = (int64_t)emit_all_torques(g) * g->of->token->lanes * 8;
  return (gradient_values){
      .from_input = ir_compare_int(b, "ne", FIELD_OF(b, loop, from_input, i64), i64(b, 0)),
      .sums = FIELD_OF(b, loop, sums, i64),
      .sums_stride = FIELD_OF(b, loop, sums_stride, i64),
      .chunk_tokens = FIELD_OF(b, loop, chunk_tokens, i64),
      .chunk_bytes = FIELD_OF(b, loop, chunk_bytes, i64),
      .prepared = FIELD_OF(b, loop, prepared, i64),
      .prepared_stride = FIELD_OF(b, loop, prepared_stride, i64),
      .positions = FIELD_OF(b, loop, positions, i64),
      .torques = FIELD_OF(b, loop, torques, i64),
      .torque_token = FIELD_OF(b, loop, torque_token, i64),
      .torque_head = FIELD_OF(b, loop, torque_head, i64),
      .inputs = spec_turns_rows(s) ? FIELD_OF(b, loop, input_gains, i64) : i64(b, 0),
      .tau = ir_alloca(b, tau_bytes + CACHE_LINE, CACHE_LINE),
      .gained = ir_alloca(b, emit_gained_numbers(s) * 8, 8),
      .of_rows = ir_alloca(b, emit_row_torque_bytes(g, row) + CACHE_LINE, CACHE_LINE),
  };
}

static void call_token(const gradient_code *g, ir *b, torque_frame frame, const ir_value *arguments) {
  ir_call(b, emit_gain_name(g, frame), spec_turns_rows(g->whole) ? 7 : 6, arguments);
}

void emit_collect_torques(const gradient_code *g, ir *b) {
  emit_collect(b, g->target, true, (int64_t)emit_all_torques(g) * g->of->token->lanes,
               emit_collect_name(g->memory, g->target));
}

static void emit_gains_of_token(const gradient_code *g, ir *b, const gradient_values *v, const gradient_token *t) {
  if (t->find_position) t->find_position(t->of);
  ir_value prepared = ir_pointer(b, add(b, v->prepared, mul(b, t->head, v->prepared_stride)));
  ir_value wanted = ir_compare_int(b, "ne", v->sums, i64(b, 0));
  ir_value chunk = mul(b, ir_op2(b, "arith.divui", t->token, v->chunk_tokens), v->chunk_bytes);
  ir_value sums = ir_select(b, wanted, add(b, add(b, v->sums, chunk), mul(b, t->head, v->sums_stride)), i64(b, 0));
  ir_value arguments[] = {t->position, prepared, v->tau, sums, v->positions, v->gained, v->inputs};
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

void emit_gradient_of_token(const gradient_code *g, ir *b, const gradient_values *v, const gradient_token *t) {
  ir_call(b, spread_name(g), 2, (ir_value[]){t->at, v->tau});
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", v->torques, i64(b, 0)));
  ir_value of_token = mul(b, t->token, v->torque_token), of_head = mul(b, t->head, v->torque_head);
  ir_value row = add(b, add(b, v->torques, of_token), of_head);
  ir_call(b, emit_collect_name(g->memory, g->target), 2, (ir_value[]){v->tau, ir_pointer(b, row)});
  ir_else(b, &branch);
  emit_gains_of_token(g, b, v, t);
  ir_end_if(b, branch);
}

int64_t emit_gained_input(const spec *s, int i) {
  int64_t at = s->n_axes;
  for (int k = 0; k < i; k++) at += s->input[k].size ? s->input[k].size : 1;
  return at;
}

int64_t emit_gained_numbers(const spec *s) { return emit_gained_input(s, spec_turns_rows(s) ? s->n_inputs : 0); }

void emit_begin_position_gradient(const gradient_code *g, ir *b, const gradient_values *v) {
  const spec *s = g->whole;
  for (int axis = 0; axis < s->n_axes; axis++)
    ir_store(b, ir_float(b, b->f64, 0), ir_offset_const(b, v->gained, axis * 8), 8, false);
  if (!spec_turns_rows(s)) return;
  ir_loop each = ir_for(b, i64(b, s->n_axes), i64(b, emit_gained_numbers(s)));
  ir_store(b, ir_float(b, b->f64, 0), ir_offset(b, v->gained, mul(b, each.index, i64(b, 8))), 8, false);
  ir_end_for(b, each);
}

void emit_end_input_gradient(const gradient_code *g, ir *b, const gradient_values *v, ir_value loop, ir_value batch,
                             ir_value token, ir_value head) {
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", v->inputs, i64(b, 0)));
  ir_value gained = ir_offset_const(b, v->gained, g->whole->n_axes * 8);
  ir_value arguments[] = {loop, batch, token, head, gained};
  ir_call(b, "pegen_driver_input_gradient", 5, arguments);
  ir_end_if(b, branch);
}

void emit_end_position_gradient(const gradient_code *g, ir *b, const gradient_values *v, ir_value loop,
                                ir_value token) {
  ir_branch branch = ir_if(b, ir_compare_int(b, "ne", v->positions, i64(b, 0)));
  ir_value arguments[] = {loop, token, i64(b, g->whole->n_axes), v->gained};
  ir_call(b, "pegen_driver_position_gradient", 4, arguments);
  ir_end_if(b, branch);
}
