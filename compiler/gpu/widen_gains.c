/* gpu/widen_gains: see gpu/widen_gains.h. */
#include "gpu/widen_gains.h"

#include "gpu/gains.h"
#include "gpu/index.h"
#include "gpu/widen_rows.h"
#include "mlir/number.h"

#include "kernel/launch.h"

enum { WARP = 32, PIECE = 16, MOST_SHARED = 48 << 10, NUMBER = TWO_FLOAT_BYTES };

/* What a token has in shared memory beside its weights: what the columns of a row gain, what weights do, what inputs do
 * of every term, and what coordinates do of every lane. */
enum { COLUMNS, WEIGHT_GAINS, TERMS, PLACES, ROOMS };

typedef struct widen_gains {
  ir *b;
  const plan_widen *p;
  const plan_gradient *of; /* NULL: positions alone gain */
  gpu_body *body;
  gpu_gains gains;
  weight_lanes lanes;
  widen_slopes slopes;
  ir_value valid, stores; /* i1: the lanes have an item of their own; and it is a token that is encoded */
  ir_value of_weights, of_places; /* i1: inputs or operands gain; positions do */
} widen_gains;

/* ---- shared memory ---- */

static int room_bytes(const plan_widen *p, const plan_gradient *of, int lanes, int room) {
  int bytes[ROOMS] = {[COLUMNS] = p->n_columns * 4,
                      [WEIGHT_GAINS] = of ? p->p->n_weights * 4 : 0,
                      [TERMS] = of ? of->n_inputs * p->spec->n_blocks * 4 : 0,
                      [PLACES] = lanes * p->spec->n_axes * NUMBER};
  return (bytes[room] + PIECE - 1) / PIECE * PIECE;
}

static int rooms_before(const plan_widen *p, const plan_gradient *of, int lanes, int room) {
  int sum = 0;
  for (int i = 0; i < room; i++) sum += room_bytes(p, of, lanes, i);
  return sum;
}

/* The fewest with which the tokens of a block fit. */
static int lanes_of(arena *a, const plan_widen *p, const plan_gradient *of, const widen_layout *l) {
  widen_tables tables = widen_tables_make(a, p, l);
  widen_slopes_make(a, &tables, p, l);
  for (int lanes = 8; lanes <= WARP; lanes *= 2) {
    int64_t each = weight_token_bytes(p, &tables, lanes, rooms_before(p, of, lanes, ROOMS));
    if (each * (PEGEN_PTX_BLOCK / lanes) <= MOST_SHARED) return lanes;
  }
  return 0;
}

/* Float32 `index` of a room. */
static ir_value room_at(widen_gains *g, int room, ir_value index) {
  return weight_rest_at(&g->lanes, rooms_before(g->p, g->of, g->lanes.lanes, room), scaled(g->b, index, 4));
}

static ir_value load_room(widen_gains *g, int room, ir_value index) {
  return ir_load(g->b, g->b->f32, room_at(g, room, index), 4);
}

static void store_room(widen_gains *g, int room, ir_value index, ir_value x) {
  ir_store(g->b, x, room_at(g, room, index), 4, false);
}

/* What a lane's coordinates gain. */
static ir_value place_at(widen_gains *g, ir_value lane, int axis) {
  ir *b = g->b;
  return room_at(g, PLACES, add(b, scaled(b, lane, 2LL * g->p->spec->n_axes), i32(b, 2LL * axis)));
}

static void wait_for_lanes(const widen_gains *g) { ir_wait(g->b, IR_BARRIER_WARP); }

/* ---- loops ---- */

/* The entries of a list of a table's: [starts[index], starts[index + 1]) of `list`; `values` are carried. */
typedef struct list_loop {
  ir_loop loop;
  ir_value entry; /* i32 */
} list_loop;

static list_loop begin_list(widen_gains *g, const char *starts, const char *list, ir_value index, int count,
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

static ir_value load_number(widen_gains *g, int dtype, ir_value at) {
  ir *b = g->b;
  if (dtype == NUMBER_F32) return ir_load(b, b->f32, at, 4);
  return emit_number_value(b, g->body->rows.native, dtype, ir_load(b, number_bits(b, dtype), at, number_bytes(dtype)));
}

static void store_number(widen_gains *g, int dtype, ir_value x, ir_value at) {
  ir *b = g->b;
  if (dtype != NUMBER_F32) x = emit_number_bits(b, g->body->rows.native, dtype, x);
  ir_store(b, x, at, number_bytes(dtype), false);
}

/* ---- a row's columns ---- */

/* What a column gains of a row: the sum over the lanes that pass its value on. */
static ir_value column_of_row(widen_gains *g, const row_place *place, bool of_k, ir_value column) {
  ir *b = g->b;
  int element = g->body->entry->tile->element;
  ir_value sum = ir_float(b, b->f32, 0), tail = ir_offset_const(b, place->in, (int64_t)g->p->spec->head_dim * element);
  list_loop l = begin_list(g, of_k ? "key_lane_starts" : "query_lane_starts", of_k ? "key_lanes" : "query_lanes",
                           column, 1, &sum);
  ir_value at = ir_offset(b, tail, wide(b, scaled(b, l.entry, element))),
           next = add(b, load_number(g, g->body->rows.dtype, at), sum);
  ir_end_for_with(b, l.loop, 1, &next, &sum);
  return sum;
}

static void lay_columns(widen_gains *g, const row_place *place) {
  lane_turns t = begin_turns(&g->lanes, g->p->n_columns);
  ir_value x = column_of_row(g, place, false, t.index);
  store_room(g, COLUMNS, t.index, x);
  end_turns(&g->lanes, t);
}

/* ---- from columns to weights, from weights to terms ---- */

static void lay_weight_gains(widen_gains *g) {
  ir *b = g->b;
  lane_turns t = begin_turns(&g->lanes, g->p->p->n_weights);
  ir_value sum = ir_float(b, b->f32, 0);
  list_loop l = begin_list(g, "weight_starts", "weight_gains", t.index, 1, &sum);
  ir_value column = load_room(g, COLUMNS, weight_table_i32(&g->lanes, "gain_columns", l.entry)),
           gain = weight_gain_at(&g->lanes, l.entry), next = ir_fma(b, column, gain, sum);
  ir_end_for_with(b, l.loop, 1, &next, &sum);
  store_room(g, WEIGHT_GAINS, t.index, sum);
  end_turns(&g->lanes, t);
}

static int sum_heads(const plan_widen *p) { return p->values->per_head ? p->spec->heads : 1; }

/* Number i of a term among the chunk's, of the head at hand. */
static ir_value sum_at(widen_gains *g, int i, ir_value term) {
  ir *b = g->b;
  int heads = sum_heads(g->p), terms = g->p->spec->n_blocks;
  ir_value of_chunk = i64(b, (int64_t)g->of->n_boundaries * heads * terms), row = i32(b, (int64_t)i * heads);
  if (heads > 1) row = add(b, row, g->body->exprs.head);
  ir_value at = mul(b, wide(b, g->gains.chunk), of_chunk), own = add(b, scaled(b, row, terms), term);
  at = add(b, at, wide(b, own));
  return ir_pointer(b, add(b, g->gains.own[PEGEN_PTX_SUMS], mul(b, at, i64(b, NUMBER))));
}

static ir_value sums_wanted(widen_gains *g) {
  return ir_compare_int(g->b, "ne", g->gains.own[PEGEN_PTX_SUMS], i64(g->b, 0));
}

/* A chunk's sums begin at 0, those of all heads; a lane clears what it adds to. */
static void clear_sums(widen_gains *g, ir_value exists) {
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
static void load_weight_gains(widen_gains *g) {
  thread_emitter *e = &g->body->exprs;
  int n = g->of->n_torques;
  two_float *tau = arena_array(g->lanes.memory, two_float, n + 1);
  for (int w = 0; w < n; w++) tau[w] = two_float_f32(load_room(g, WEIGHT_GAINS, i32(g->b, w)));
  e->cotangents = tau;
  e->n_cotangents = n;
}

static void add_to_sums(widen_gains *g, ir_value term, ir_value exists) {
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
static void lay_term(widen_gains *g, ir_value term, ir_value exists) {
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
static void go_through_terms(widen_gains *g) {
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
static const char *element_list(widen_gains *g, int input, const char *what) {
  return arena_printf(g->lanes.memory, "input_%d_%s", input, what);
}

static void emit_input_tables(widen_gains *g) {
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
static void store_input(widen_gains *g, const ir_value *to, ir_value element, ir_value sum, ir_value adds) {
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
    ir_value there = load_number(g, dtype, at);
    ir_choose_else(b, &choice, 1, &there);
    ir_end_choose(b, choice, 1, &zero, &old);
    store_number(g, dtype, add(b, sum, old), at);
    ir_end_if(b, branch);
  }
}

static void write_inputs(widen_gains *g) {
  ir *b = g->b;
  const spec *s = g->p->spec;
  ir_value adds = ir_compare_int(b, "ne", g->gains.own[PEGEN_PTX_COLUMN_ADDS], i64(b, 0));
  for (int input = 0; input < s->n_inputs; input++) {
    const ir_value *to = g->gains.own + PEGEN_PTX_COLUMN_INPUTS + input * PEGEN_PTX_INPUT_COUNT;
    ir_value given = ir_compare_int(b, "ne", to[PEGEN_PTX_INPUT_ADDRESS], i64(b, 0));
    ir_branch wanted = ir_if(b, both(b, given, g->valid));
    lane_turns t = begin_turns(&g->lanes, elements_of(s, input));
    ir_value sum = ir_float(b, b->f32, 0);
    list_loop l = begin_list(g, element_list(g, input, "starts"), element_list(g, input, "terms"), t.index, 1, &sum);
    ir_value next = add(b, sum, load_room(g, TERMS, l.entry));
    ir_end_for_with(b, l.loop, 1, &next, &sum);
    store_input(g, to, t.index, sum, adds);
    end_turns(&g->lanes, t);
    ir_end_if(b, wanted);
  }
}

/* ---- positions ---- */

static void clear_places(widen_gains *g) {
  ir *b = g->b;
  for (int axis = 0; axis < g->p->spec->n_axes; axis++)
    two_float_store(b, two_float_const(b, 0), place_at(g, g->lanes.lane, axis));
}

/* Adds x times the slopes of sum `index` of `count` to what the lane's coordinates gain. */
static void add_slopes(widen_gains *g, const widen_sums *slopes, int count, ir_value index, two_float x) {
  ir *b = g->b;
  for (int axis = 0; axis < g->p->spec->n_axes; axis++) {
    ir_value own = add(b, index, i32(b, (int64_t)axis * count)), at = place_at(g, g->lanes.lane, axis);
    two_float slope = weight_exact_sum_at(&g->lanes, slopes, own), gained = two_float_mul(b, slope, x);
    two_float_store(b, two_float_add(b, two_float_load(b, at), gained), at);
  }
}

/* Of a row of q, whose weights are laid. */
static void add_places_of_query(widen_gains *g) {
  ir *b = g->b;
  lane_turns t = begin_turns(&g->lanes, g->lanes.tables.n_gains);
  ir_value weight = weight_of_gain(&g->lanes, t.index),
           column = load_room(g, COLUMNS, weight_table_i32(&g->lanes, "gain_columns", t.index));
  add_slopes(g, &g->slopes.gains, g->lanes.tables.n_gains, t.index,
             two_float_mul(b, two_float_f32(weight), two_float_f32(column)));
  end_turns(&g->lanes, t);
}

/* Of all rows of k, which hold the same keys. */
static void add_places_of_keys(widen_gains *g, const row_origin *origin, ir_value begin, ir_value end) {
  ir *b = g->b;
  lane_turns t = begin_turns(&g->lanes, g->p->n_columns);
  ir_value values[2] = {ir_float(b, b->f32, 0), ir_float(b, b->f32, 0)};
  ir_loop heads = ir_for_with(b, wide(b, begin), wide(b, end), 2, values, values);
  row_place place = emit_row_place(&g->body->rows, origin, narrow(b, heads.index));
  two_float old = {.hi = values[0], .lo = values[1]},
            sum = two_float_add(b, old, two_float_f32(column_of_row(g, &place, true, t.index)));
  ir_end_for_with(b, heads, 2, (ir_value[]){sum.hi, sum.lo}, values);
  add_slopes(g, &g->slopes.keys, g->p->n_columns, t.index, (two_float){.hi = values[0], .lo = values[1]});
  end_turns(&g->lanes, t);
}

/* What lanes' coordinates gained, in the order of lanes, as the item's share. */
static void give_places(widen_gains *g) {
  ir *b = g->b;
  int axes = g->p->spec->n_axes;
  ir_value item = mul(b, wide(b, g->gains.item), i64(b, (int64_t)axes * NUMBER)),
           shares = add(b, g->gains.own[PEGEN_PTX_SHARES], item);
  ir_branch own = ir_if(b, both(b, g->valid, ir_compare_int(b, "eq", g->lanes.lane, i32(b, 0))));
  for (int axis = 0; axis < axes; axis++) {
    two_float sum = two_float_const(b, 0);
    for (int lane = 0; lane < g->lanes.lanes; lane++)
      sum = two_float_add(b, sum, two_float_load(b, place_at(g, i32(b, lane), axis)));
    two_float_store(b, sum, ir_offset_const(b, ir_pointer(b, shares), (int64_t)axis * NUMBER));
  }
  ir_end_if(b, own);
}

/* ---- an item ---- */

static void lay_token(widen_gains *g) {
  ir *b = g->b;
  weight_lanes *l = &g->lanes;
  const spec *s = g->p->spec;
  two_float place[SPEC_MAX_AXES];
  wait_for_lanes(g); /* for those that read the one before */
  ir_branch first = ir_if(b, ir_compare_int(b, "eq", l->lane, i32(b, 0)));
  gpu_load_positions(g->body);
  for (int axis = 0; axis < s->n_axes; axis++) {
    double origin = s->polynomial->origin[axis];
    place[axis] = g->body->exprs.positions[axis];
    if (origin != 0) place[axis] = two_float_sub(b, place[axis], two_float_const(b, origin));
  }
  weight_lay_monomials(l, place);
  ir_end_if(b, first);
  clear_places(g);
  wait_for_lanes(g);
  weight_lay_gains(l);
  wait_for_lanes(g);
}

static void go_through_query(widen_gains *g, const row_place *place) {
  ir *b = g->b;
  gpu_body *t = g->body;
  const ir_value *inputs = t->parameter + pegen_ptx_inputs(PEGEN_PTX_OPERANDS, g->p->spec->n_operands);
  weight_set_inputs(&g->lanes, inputs, t->owner.batch, t->owner.token, t->exprs.head, t->entry->dtype);
  lay_columns(g, place);
  wait_for_lanes(g);
  if (g->of) {
    ir_branch wanted = ir_if(b, g->of_weights);
    lay_weight_gains(g);
    wait_for_lanes(g);
    go_through_terms(g);
    wait_for_lanes(g);
    write_inputs(g);
    ir_end_if(b, wanted);
  }
  ir_branch wanted = ir_if(b, g->of_places);
  weight_lay_weights(&g->lanes);
  add_places_of_query(g);
  ir_end_if(b, wanted);
  wait_for_lanes(g);
}

/* All lanes of a warp are at the same row of their tokens. */
static void go_through_item(widen_gains *g) {
  ir *b = g->b;
  gpu_body *t = g->body;
  lay_token(g);
  row_origin origin = emit_row_origin(&t->rows, &t->owner, i64(b, 0));
  ir_value of_q = narrow(b, t->parameter[PEGEN_PTX_Q + PEGEN_PTX_TENSOR_HEADS]), row;
  ir_loop loop = gpu_begin_rows(t, &row);
  row_place place = emit_row_place(&t->rows, &origin, row);
  widen_move_row(t, &g->lanes, &place, both(b, g->valid, gpu_is_written(t, row)));
  ir_branch queries = ir_if(b, less(b, row, of_q));
  t->exprs.head = row;
  go_through_query(g, &place);
  ir_end_if(b, queries);
  ir_end_for(b, loop);
  ir_branch wanted = ir_if(b, g->of_places);
  add_places_of_keys(g, &origin, of_q, t->end);
  wait_for_lanes(g);
  give_places(g);
  ir_end_if(b, wanted);
}

/* ---- the entry ---- */

static ir_value is_given(ir *b, ir_value address) { return ir_compare_int(b, "ne", address, i64(b, 0)); }

static void find_wanted(widen_gains *g) {
  ir *b = g->b;
  g->of_places = is_given(b, g->gains.own[PEGEN_PTX_SHARES]);
  g->of_weights = sums_wanted(g);
  for (int i = 0; i < g->p->spec->n_inputs; i++) {
    ir_value input = g->gains.own[PEGEN_PTX_COLUMN_INPUTS + i * PEGEN_PTX_INPUT_COUNT + PEGEN_PTX_INPUT_ADDRESS];
    g->of_weights = ir_op2(b, "arith.ori", g->of_weights, is_given(b, input));
  }
}

static void open_lanes(widen_gains *g) {
  ir *b = g->b;
  gpu_body *t = g->body;
  weight_lanes *l = &g->lanes;
  const widen_layout *layout = &g->p->layout[t->entry->dtype];
  *l = widen_lanes_of(t, g->p);
  l->rest = rooms_before(g->p, g->of, l->lanes, ROOMS);
  l->tables = widen_tables_make(l->memory, g->p, layout);
  g->slopes = widen_slopes_make(l->memory, &l->tables, g->p, layout);
  widen_tables_emit(b, l->memory, &l->tables, l->prefix);
  widen_slopes_emit(b, l->memory, &g->slopes, l->prefix);
  emit_input_tables(g);
  t->rows.exprs = l->exprs = &t->exprs;
  const char *memory = arena_printf(l->memory, "%s_tokens", l->prefix);
  ir_shared(b, memory, (int64_t)(PEGEN_PTX_BLOCK / l->lanes) * weight_token_bytes(g->p, &l->tables, l->lanes, l->rest));
  l->shared = ir_shared_address(b, memory);
}

/* All lanes go through as many items; past the chunk's they go through its last, and write nothing. */
void gpu_emit_widen_gains(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                          bool host) {
  const plan_widen *p = program_widen_plan(program->encode);
  gpu_body t = gpu_open(b, a, p->values, false, entry, native, host);
  widen_gains g = {.b = b, .p = p, .of = program->of, .body = &t};
  g.gains = (gpu_gains){.body = &t, .of = program->of, .own = t.parameter + gpu_parameters(p->spec)};
  open_lanes(&g);
  t.program = program->encode;
  t.rows.streams = row_streams(b, t.parameter);
  find_wanted(&g);
  ir_value items = narrow(b, g.gains.own[PEGEN_PTX_ITEMS]), size = narrow(b, g.gains.own[PEGEN_PTX_CHUNK]);
  g.gains.chunk = add(b, scaled(b, t.block, PEGEN_PTX_BLOCK / g.lanes.lanes), g.lanes.token);
  ir_value begin = mul(b, g.gains.chunk, size);
  clear_sums(&g, below(b, begin, items));
  ir_loop loop = ir_for(b, i64(b, 0), wide(b, size));
  ir_value item = add(b, begin, narrow(b, loop.index));
  g.valid = below(b, item, items);
  gpu_set_item(&g.gains, ir_select(b, g.valid, item, sub(b, items, i32(b, 1))));
  ir_value encoded = gpu_is_encoded(&t);
  g.stores = encoded.ptr ? both(b, g.valid, encoded) : g.valid;
  go_through_item(&g);
  ir_end_for(b, loop);
  ir_return(b);
}

static gpu_entry finishing(arena *a, const plan_widen *p, gpu_entry_kind kind, const char *word) {
  return gpu_finish_entry(a, p->spec, PEGEN_LAUNCH_encode_backward_finish, kind, word);
}

bool gpu_widen_gains_fit(arena *a, const plan_widen *p, const plan_gradient *of) {
  const spec *s = p->spec;
  int own = pegen_ptx_behind_inputs(PEGEN_PTX_COLUMN_INPUTS, 0, s->n_inputs);
  if (gpu_parameters(s) + own > PEGEN_PTX_MAX_PARAMETERS) return false;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
    if (!lanes_of(a, p, of, &p->layout[dtype])) return false;
  return true;
}

int gpu_widen_gain_entries(arena *a, const plan_widen *p, const plan_gradient *of, unsigned dtypes,
                           gpu_entry *entries) {
  int count = 0;
  if (!gpu_widen_gains_fit(a, p, of)) return 0;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    const widen_layout *layout = &p->layout[dtype];
    if (!(dtypes & 1u << dtype)) continue;
    int element = number_bytes(dtype), lanes = lanes_of(a, p, of, layout);
    bool whole = p->spec->head_dim * element % PIECE == 0 && layout->n_lanes * element % PIECE == 0;
    for (int narrow = !whole; narrow < 2; narrow++) {
      int access = narrow ? element : PIECE;
      const char *suffix = narrow && whole ? "_narrow" : "";
      entries[count++] = (gpu_entry){
          .name = arena_printf(a, "%s_%s_%s%s", p->spec->name, PEGEN_PTX_WORD_GRADIENT, number_name(dtype), suffix),
          .of = PEGEN_LAUNCH_encode_backward,
          .word = PEGEN_PTX_WORD_GRADIENT,
          .kind = GPU_COLUMN_GRADIENT,
          .dtype = dtype,
          .access = access,
          .tile = widen_tile(a, p, element, access, lanes),
          .units = lanes,
          .flight = 1,
          .blocks = 1};
    }
  }
  if (of && of->n_boundaries) {
    entries[count++] = finishing(a, p, GPU_SUM, PEGEN_PTX_WORD_SUM);
    entries[count++] = finishing(a, p, GPU_SCATTER, PEGEN_PTX_WORD_SCATTER);
    entries[count++] = finishing(a, p, GPU_GATHER, PEGEN_PTX_WORD_GATHER);
  }
  entries[count++] = finishing(a, p, GPU_POSITIONS, PEGEN_PTX_WORD_POSITIONS);
  return count;
}
