/* gpu/weight_gains: see gpu/weight_gains.h. */
#include "gpu/weight_gains.h"

#include "gpu/index.h"
#include "mlir/number.h"

#include "kernel/launch.h"

enum { PIECE = 16, NUMBER = TWO_FLOAT_BYTES };

/* ---- shared memory ---- */

/* What a token has in it: what weights gain, and what inputs do of every term. */
enum { WEIGHT_GAINS, TERMS, ROOMS };

static int room_bytes(const plan_widen *p, const plan_gradient *of, int room) {
  int bytes[ROOMS] = {[WEIGHT_GAINS] = of ? p->p->n_weights * 4 : 0,
                      [TERMS] = of ? of->n_inputs * p->spec->n_blocks * 4 : 0};
  return (bytes[room] + PIECE - 1) / PIECE * PIECE;
}

static int rooms_before(const plan_widen *p, const plan_gradient *of, int room) {
  int sum = 0;
  for (int i = 0; i < room; i++) sum += room_bytes(p, of, i);
  return sum;
}

int weight_gains_bytes(const plan_widen *p, const plan_gradient *of) { return rooms_before(p, of, ROOMS); }

/* Float32 `index` of a room. */
static ir_value room_at(weight_gains *g, int room, ir_value index) {
  ir *b = g->b;
  ir_value token = scaled(b, g->lanes.token, weight_gains_bytes(g->p, g->of)),
           begin = add(b, token, i32(b, rooms_before(g->p, g->of, room)));
  return ir_offset(b, g->rooms, wide(b, add(b, begin, scaled(b, index, 4))));
}

static ir_value load_room(weight_gains *g, int room, ir_value index) {
  return ir_load(g->b, g->b->f32, room_at(g, room, index), 4);
}

static void store_room(weight_gains *g, int room, ir_value index, ir_value x) {
  ir_store(g->b, x, room_at(g, room, index), 4, false);
}

/* ---- loops ---- */

list_loop weight_begin_list(weight_gains *g, const char *starts, const char *list, ir_value index, int count,
                            ir_value *values) {
  ir *b = g->b;
  list_loop l;
  ir_value begin = wide(b, weight_table_i32(&g->lanes, starts, index)),
           end = wide(b, weight_table_i32(&g->lanes, starts, add(b, index, i32(b, 1))));
  l.loop = ir_for_with(b, begin, end, count, values, values);
  l.entry = weight_table_i32(&g->lanes, list, narrow(b, l.loop.index));
  return l;
}

/* ---- numbers of rows and inputs ---- */

ir_value weight_load_number(weight_gains *g, int dtype, ir_value at) {
  ir *b = g->b;
  if (dtype == NUMBER_F32) return ir_load(b, b->f32, at, 4);
  return emit_number_value(b, g->body->rows.native, dtype, ir_load(b, number_bits(b, dtype), at, number_bytes(dtype)));
}

static void store_number(weight_gains *g, int dtype, ir_value x, ir_value at) {
  ir *b = g->b;
  if (dtype != NUMBER_F32) x = emit_number_bits(b, g->body->rows.native, dtype, x);
  ir_store(b, x, at, number_bytes(dtype), false);
}

static int sum_heads(const plan_widen *p) { return p->values->per_head ? p->spec->heads : 1; }

/* Number i of a term among the chunk's, of the head at hand. */
static ir_value sum_at(weight_gains *g, int i, ir_value term) {
  ir *b = g->b;
  int heads = sum_heads(g->p), terms = g->p->spec->n_blocks;
  ir_value of_chunk = i64(b, (int64_t)g->of->n_boundaries * heads * terms), row = i32(b, (int64_t)i * heads);
  if (heads > 1) row = add(b, row, g->body->exprs.head);
  ir_value at = mul(b, wide(b, g->gains.chunk), of_chunk), own = add(b, scaled(b, row, terms), term);
  at = add(b, at, wide(b, own));
  return ir_pointer(b, add(b, g->gains.own[PEGEN_PTX_SUMS], mul(b, at, i64(b, NUMBER))));
}

static ir_value sums_wanted(weight_gains *g) {
  return ir_compare_int(g->b, "ne", g->gains.own[PEGEN_PTX_SUMS], i64(g->b, 0));
}

/* A chunk's sums begin at 0, those of all heads; a lane clears what it adds to. */
static void clear_sums(weight_gains *g, ir_value exists) {
  ir *b = g->b;
  if (!g->of || !g->of->n_boundaries) return;
  ir_branch wanted = ir_if(b, both(b, exists, sums_wanted(g)));
  ir_loop heads = ir_for(b, i64(b, 0), i64(b, sum_heads(g->p)));
  g->body->exprs.head = narrow(b, heads.index);
  lane_turns t = begin_turns(&g->lanes, g->p->spec->n_blocks);
  for (int i = 0; i < g->of->n_boundaries; i++) two_float_store(b, two_float_const(b, 0), sum_at(g, i, t.index));
  end_turns(&g->lanes, t);
  ir_end_for(b, heads);
  ir_end_if(b, wanted);
}

/* Loaded anew for each thing that is made of them: registers would not hold those of many weights. */
static void load_weight_gains(weight_gains *g) {
  thread_emitter *e = &g->body->exprs;
  int n = g->of->n_torques;
  two_float *tau = arena_array(g->lanes.memory, two_float, n + 1);
  for (int w = 0; w < n; w++) tau[w] = two_float_f32(load_room(g, WEIGHT_GAINS, i32(g->b, w)));
  e->cotangents = tau;
  e->n_cotangents = n;
}

static void add_to_sums(weight_gains *g, ir_value term, ir_value exists) {
  ir *b = g->b;
  const plan_gradient *of = g->of;
  if (!of->n_boundaries) return;
  thread_emitter *e = &g->body->exprs;
  ir_branch wanted = ir_if(b, both(b, both(b, exists, g->stores), sums_wanted(g)));
  two_float *remembered = emit_thread_remember(e);
  emit_thread_operands(e, of->of_boundary[TORQUE_OF_Y], of->n_boundaries);
  for (int i = 0; i < of->n_boundaries; i++) {
    const expr *gained = of->of_boundary[TORQUE_OF_Y][i];
    if (expr_is_const(gained, 0)) continue;
    two_float *before = emit_thread_remember(e);
    load_weight_gains(g);
    two_float x = emit_thread_value(e, gained, 0);
    emit_thread_forget(e, before);
    ir_value at = sum_at(g, i, term);
    two_float_store(b, two_float_add(b, two_float_load(b, at), x), at);
  }
  emit_thread_forget(e, remembered);
  ir_end_if(b, wanted);
}

/* What the inputs of a term gain; nothing of a token that is not encoded. */
static void lay_term(weight_gains *g, ir_value term, ir_value exists) {
  ir *b = g->b;
  const plan_gradient *of = g->of;
  if (!of->n_inputs) return;
  thread_emitter *e = &g->body->exprs;
  two_float *remembered = emit_thread_remember(e);
  const expr **roots = arena_array(g->lanes.memory, const expr *, of->n_inputs);
  ir_value *gained = arena_array(g->lanes.memory, ir_value, of->n_inputs), zero = ir_float(b, b->f32, 0);
  for (int i = 0; i < of->n_inputs; i++) roots[i] = of->of_input[i].gradient;
  emit_thread_operands(e, roots, of->n_inputs);
  load_weight_gains(g);
  for (int i = 0; i < of->n_inputs; i++) gained[i] = ir_select(b, g->stores, emit_thread_f32(e, roots[i], 0), zero);
  ir_branch own = ir_if(b, exists);
  for (int i = 0; i < of->n_inputs; i++)
    store_room(g, TERMS, add(b, term, i32(b, (int64_t)i * g->p->spec->n_blocks)), gained[i]);
  ir_end_if(b, own);
  emit_thread_forget(e, remembered);
}

/* The terms of a lane, from what weights gain. */
static void go_through_terms(weight_gains *g) {
  ir *b = g->b;
  thread_emitter *e = &g->body->exprs;
  int terms = g->p->spec->n_blocks, lanes = g->lanes.lanes;
  ir_loop loop = ir_for(b, i64(b, 0), i64(b, (terms + lanes - 1) / lanes));
  ir_value term = add(b, g->lanes.lane, scaled(b, narrow(b, loop.index), lanes)),
           exists = below(b, term, i32(b, terms));
  e->unit = ir_select(b, exists, term, i32(b, terms - 1));
  lay_term(g, e->unit, exists);
  add_to_sums(g, e->unit, exists);
  ir_end_for(b, loop);
}

/* ---- inputs ---- */

static int elements_of(const spec *s, int input) { return s->input[input].size ? (int)s->input[input].size : 1; }

/* Which terms' gains an element of an input gains, as places in TERMS: terms[first[e]] up to terms[first[e + 1]]. */
static const char *element_list(weight_gains *g, int input, const char *what) {
  return arena_printf(g->lanes.memory, "input_%d_%s", input, what);
}

static void emit_input_tables(weight_gains *g) {
  const spec *s = g->p->spec;
  const plan_gradient *of = g->of;
  arena *a = g->lanes.memory;
  int blocks = s->n_blocks;
  for (int input = 0; of && input < s->n_inputs; input++) {
    int elements = elements_of(s, input), count = 0;
    int32_t *first = arena_array(a, int32_t, elements + 1), *terms = arena_array(a, int32_t, of->n_inputs *blocks + 1);
    for (int e = 0; e < elements; e++) {
      for (int i = 0; i < of->n_inputs; i++)
        for (int block = 0; block < blocks && of->of_input[i].leaf->index == input; block++)
          if (of->of_input[i].leaf->offsets[block] == e) terms[count++] = i * blocks + block;
      first[e + 1] = count;
    }
    ir_table(g->b, widen_table_name(a, g->lanes.prefix, element_list(g, input, "starts")), elements + 1, NULL, first);
    ir_table(g->b, widen_table_name(a, g->lanes.prefix, element_list(g, input, "terms")), count + !count, NULL, terms);
  }
}

/* As a number of the input's type, where the call wants it. */
static void store_input(weight_gains *g, const ir_value *to, ir_value element, ir_value sum, ir_value adds) {
  ir *b = g->b;
  int own = g->body->rows.dtype;
  ir_value type = to[PEGEN_PTX_INPUT_TYPE], row = to[PEGEN_PTX_INPUT_ADDRESS], zero = ir_float(b, b->f32, 0);
  const row_owner *owner = &g->body->owner;
  row = add(b, row, mul(b, wide(b, owner->batch), to[PEGEN_PTX_INPUT_BATCH]));
  row = add(b, row, mul(b, wide(b, owner->token), to[PEGEN_PTX_INPUT_TOKEN]));
  row = ir_pointer(b, add(b, row, mul(b, wide(b, g->body->exprs.head), to[PEGEN_PTX_INPUT_HEAD])));
  for (int pass = 0; pass < (own == NUMBER_F32 ? 1 : 2); pass++) {
    int dtype = pass ? own : NUMBER_F32;
    ir_value is_f32 = ir_compare_int(b, pass ? "ne" : "eq", type, i64(b, PEGEN_PTX_OPERAND_F32)), old;
    ir_branch branch = ir_if(b, is_f32);
    ir_value at = ir_offset(b, row, wide(b, scaled(b, element, number_bytes(dtype))));
    ir_choice choice = ir_choose(b, adds, 1, &b->f32);
    ir_value there = weight_load_number(g, dtype, at);
    ir_choose_else(b, &choice, 1, &there);
    ir_end_choose(b, choice, 1, &zero, &old);
    store_number(g, dtype, add(b, sum, old), at);
    ir_end_if(b, branch);
  }
}

static void write_inputs(weight_gains *g) {
  ir *b = g->b;
  const spec *s = g->p->spec;
  ir_value adds = ir_compare_int(b, "ne", g->gains.own[PEGEN_PTX_COLUMN_ADDS], i64(b, 0));
  for (int input = 0; input < s->n_inputs; input++) {
    const ir_value *to = g->gains.own + PEGEN_PTX_COLUMN_INPUTS + input * PEGEN_PTX_INPUT_COUNT;
    ir_value given = ir_compare_int(b, "ne", to[PEGEN_PTX_INPUT_ADDRESS], i64(b, 0));
    ir_branch wanted = ir_if(b, both(b, given, g->valid));
    lane_turns t = begin_turns(&g->lanes, elements_of(s, input));
    ir_value sum = ir_float(b, b->f32, 0);
    list_loop l =
        weight_begin_list(g, element_list(g, input, "starts"), element_list(g, input, "terms"), t.index, 1, &sum);
    ir_value next = add(b, sum, load_room(g, TERMS, l.entry));
    ir_end_for_with(b, l.loop, 1, &next, &sum);
    store_input(g, to, t.index, sum, adds);
    end_turns(&g->lanes, t);
    ir_end_if(b, wanted);
  }
}

/* ---- an item ---- */

static ir_value is_given(ir *b, ir_value address) { return ir_compare_int(b, "ne", address, i64(b, 0)); }

ir_value weight_gains_wanted(weight_gains *g) {
  ir *b = g->b;
  ir_value wanted = sums_wanted(g);
  for (int i = 0; i < g->p->spec->n_inputs; i++) {
    ir_value input = g->gains.own[PEGEN_PTX_COLUMN_INPUTS + i * PEGEN_PTX_INPUT_COUNT + PEGEN_PTX_INPUT_ADDRESS];
    wanted = ir_op2(b, "arith.ori", wanted, is_given(b, input));
  }
  return wanted;
}

void weight_gains_open(weight_gains *g) {
  ir *b = g->b;
  if (!g->of) return;
  const char *memory = arena_printf(g->lanes.memory, "%s_gains", g->lanes.prefix);
  emit_input_tables(g);
  ir_shared(b, memory, (int64_t)(PEGEN_PTX_BLOCK / g->lanes.lanes) * weight_gains_bytes(g->p, g->of));
  g->rooms = ir_shared_address(b, memory);
}

ir_loop weight_gains_begin_items(weight_gains *g) {
  ir *b = g->b;
  const spec *s = g->p->spec;
  ir_value items = narrow(b, g->gains.own[PEGEN_PTX_ITEMS]), size = narrow(b, g->gains.own[PEGEN_PTX_CHUNK]);
  g->gains.chunk = add(b, scaled(b, g->body->block, PEGEN_PTX_BLOCK / g->lanes.lanes), g->lanes.token);
  ir_value begin = mul(b, g->gains.chunk, size);
  clear_sums(g, below(b, begin, items));
  ir_loop loop = ir_for(b, i64(b, 0), wide(b, size));
  ir_value item = add(b, begin, narrow(b, loop.index));
  g->valid = below(b, item, items);
  gpu_set_item(&g->gains, ir_select(b, g->valid, item, sub(b, items, i32(b, 1))));
  g->stores = g->valid;
  if (s->skip_tokens) {
    ir_value first = g->first.ptr ? g->first : i32(b, s->skip_tokens),
             encoded = ir_compare_int(b, "sge", g->body->owner.token, first);
    g->stores = both(b, g->valid, encoded);
  }
  return loop;
}

void weight_gains_set_query(weight_gains *g, ir_value head) {
  gpu_body *t = g->body;
  const ir_value *inputs = t->parameter + pegen_ptx_inputs(PEGEN_PTX_OPERANDS, g->p->spec->n_operands);
  t->exprs.head = head;
  emit_thread_inputs(g->lanes.exprs, inputs, t->owner.batch, t->owner.token, head, t->entry->dtype);
}

void weight_gains_lay(weight_gains *g, ir_value weight, ir_value x) { store_room(g, WEIGHT_GAINS, weight, x); }

void weight_gains_give(weight_gains *g) {
  go_through_terms(g);
  ir_wait(g->b, IR_BARRIER_WARP);
  write_inputs(g);
}
