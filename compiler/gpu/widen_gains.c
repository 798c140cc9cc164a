/* gpu/widen_gains: see gpu/widen_gains.h. */
#include "gpu/widen_gains.h"

#include "gpu/index.h"
#include "gpu/weight_gains.h"
#include "gpu/widen_rows.h"

#include "kernel/launch.h"

enum { WARP = 32, PIECE = 16, MOST_SHARED = 48 << 10, NUMBER = TWO_FLOAT_BYTES };

/* What a token has in shared memory beside its weights and what they gain: what the columns of a row gain, and what
 * coordinates do of every lane. */
enum { COLUMNS, PLACES, ROOMS };

typedef struct widen_gains {
  weight_gains w; /* w.of NULL: positions alone gain */
  widen_slopes slopes;
  ir_value of_weights, of_places; /* i1: inputs or operands gain; positions do */
} widen_gains;

/* ---- shared memory ---- */

static int room_bytes(const plan_widen *p, int lanes, int room) {
  int bytes[ROOMS] = {[COLUMNS] = p->n_columns * 4, [PLACES] = lanes * p->spec->n_axes * NUMBER};
  return (bytes[room] + PIECE - 1) / PIECE * PIECE;
}

static int rooms_before(const plan_widen *p, int lanes, int room) {
  int sum = 0;
  for (int i = 0; i < room; i++) sum += room_bytes(p, lanes, i);
  return sum;
}

/* The fewest with which the tokens of a block fit. */
static int lanes_of(arena *a, const plan_widen *p, const plan_gradient *of, const widen_layout *l) {
  widen_tables tables = widen_tables_make(a, p, l);
  widen_slopes_make(a, &tables, p, l);
  for (int lanes = 8; lanes <= WARP; lanes *= 2) {
    int64_t each = weight_token_bytes(p, &tables, lanes, rooms_before(p, lanes, ROOMS)) + weight_gains_bytes(p, of);
    if (each * (PEGEN_PTX_BLOCK / lanes) <= MOST_SHARED) return lanes;
  }
  return 0;
}

/* Float32 `index` of a room. */
static ir_value room_at(widen_gains *g, int room, ir_value index) {
  return weight_rest_at(&g->w.lanes, rooms_before(g->w.p, g->w.lanes.lanes, room), scaled(g->w.b, index, 4));
}

static ir_value load_room(widen_gains *g, int room, ir_value index) {
  return ir_load(g->w.b, g->w.b->f32, room_at(g, room, index), 4);
}

static void store_room(widen_gains *g, int room, ir_value index, ir_value x) {
  ir_store(g->w.b, x, room_at(g, room, index), 4, false);
}

/* What a lane's coordinates gain. */
static ir_value place_at(widen_gains *g, ir_value lane, int axis) {
  ir *b = g->w.b;
  return room_at(g, PLACES, add(b, scaled(b, lane, 2LL * g->w.p->spec->n_axes), i32(b, 2LL * axis)));
}

static void wait_for_lanes(const widen_gains *g) { ir_wait(g->w.b, IR_BARRIER_WARP); }

/* ---- a row's columns ---- */

/* What a column gains of a row: the sum over the lanes that pass its value on. */
static ir_value column_of_row(widen_gains *g, const row_place *place, bool of_k, ir_value column) {
  ir *b = g->w.b;
  int element = g->w.body->entry->tile->element;
  ir_value sum = ir_float(b, b->f32, 0),
           tail = ir_offset_const(b, place->in, (int64_t)g->w.p->spec->head_dim * element);
  list_loop l = weight_begin_list(&g->w, of_k ? "key_lane_starts" : "query_lane_starts",
                                  of_k ? "key_lanes" : "query_lanes", column, 1, &sum);
  ir_value at = ir_offset(b, tail, wide(b, scaled(b, l.entry, element))),
           next = add(b, weight_load_number(&g->w, g->w.body->rows.dtype, at), sum);
  ir_end_for_with(b, l.loop, 1, &next, &sum);
  return sum;
}

static void lay_columns(widen_gains *g, const row_place *place) {
  lane_turns t = begin_turns(&g->w.lanes, g->w.p->n_columns);
  ir_value x = column_of_row(g, place, false, t.index);
  store_room(g, COLUMNS, t.index, x);
  end_turns(&g->w.lanes, t);
}

/* ---- from columns to weights ---- */

static void lay_weight_gains(widen_gains *g) {
  ir *b = g->w.b;
  lane_turns t = begin_turns(&g->w.lanes, g->w.p->p->n_weights);
  ir_value sum = ir_float(b, b->f32, 0);
  list_loop l = weight_begin_list(&g->w, "weight_starts", "weight_gains", t.index, 1, &sum);
  ir_value column = load_room(g, COLUMNS, weight_table_i32(&g->w.lanes, "gain_columns", l.entry)),
           gain = weight_gain_at(&g->w.lanes, l.entry), next = ir_fma(b, column, gain, sum);
  ir_end_for_with(b, l.loop, 1, &next, &sum);
  weight_gains_lay(&g->w, t.index, sum);
  end_turns(&g->w.lanes, t);
}

/* ---- positions ---- */

static void clear_places(widen_gains *g) {
  ir *b = g->w.b;
  for (int axis = 0; axis < g->w.p->spec->n_axes; axis++)
    two_float_store(b, two_float_const(b, 0), place_at(g, g->w.lanes.lane, axis));
}

/* Adds x times the slopes of sum `index` of `count` to what the lane's coordinates gain. */
static void add_slopes(widen_gains *g, const widen_sums *slopes, int count, ir_value index, two_float x) {
  ir *b = g->w.b;
  for (int axis = 0; axis < g->w.p->spec->n_axes; axis++) {
    ir_value own = add(b, index, i32(b, (int64_t)axis * count)), at = place_at(g, g->w.lanes.lane, axis);
    two_float slope = weight_exact_sum_at(&g->w.lanes, slopes, own), gained = two_float_mul(b, slope, x);
    two_float_store(b, two_float_add(b, two_float_load(b, at), gained), at);
  }
}

/* Adds what a row of q gives to its token's coordinates; the weights are laid. */
static void add_places_of_query(widen_gains *g) {
  ir *b = g->w.b;
  lane_turns t = begin_turns(&g->w.lanes, g->w.lanes.tables.n_gains);
  ir_value weight = weight_of_gain(&g->w.lanes, t.index),
           column = load_room(g, COLUMNS, weight_table_i32(&g->w.lanes, "gain_columns", t.index));
  add_slopes(g, &g->slopes.gains, g->w.lanes.tables.n_gains, t.index,
             two_float_mul(b, two_float_f32(weight), two_float_f32(column)));
  end_turns(&g->w.lanes, t);
}

/* Adds what rows of k give to their token's coordinates, for all heads: they hold the same keys. */
static void add_places_of_keys(widen_gains *g, const row_origin *origin, ir_value begin, ir_value end) {
  ir *b = g->w.b;
  lane_turns t = begin_turns(&g->w.lanes, g->w.p->n_columns);
  two_float sum = two_float_const(b, 0);
  ir_loop heads = two_float_for(b, wide(b, begin), wide(b, end), 1, &sum);
  row_place place = emit_row_place(&g->w.body->rows, origin, narrow(b, heads.index));
  sum = two_float_add(b, sum, two_float_f32(column_of_row(g, &place, true, t.index)));
  two_float_end_for(b, heads, 1, &sum);
  add_slopes(g, &g->slopes.keys, g->w.p->n_columns, t.index, sum);
  end_turns(&g->w.lanes, t);
}

/* What lanes' coordinates gained, in the order of lanes, as the item's share. */
static void give_places(widen_gains *g) {
  ir *b = g->w.b;
  int axes = g->w.p->spec->n_axes;
  ir_value item = mul(b, wide(b, g->w.gains.item), i64(b, (int64_t)axes * NUMBER)),
           shares = add(b, g->w.gains.own[PEGEN_PTX_SHARES], item);
  ir_branch own = ir_if(b, both(b, g->w.valid, ir_compare_int(b, "eq", g->w.lanes.lane, i32(b, 0))));
  for (int axis = 0; axis < axes; axis++) {
    two_float sum = two_float_const(b, 0);
    for (int lane = 0; lane < g->w.lanes.lanes; lane++)
      sum = two_float_add(b, sum, two_float_load(b, place_at(g, i32(b, lane), axis)));
    two_float_store(b, sum, ir_offset_const(b, ir_pointer(b, shares), (int64_t)axis * NUMBER));
  }
  ir_end_if(b, own);
}

/* ---- an item ---- */

static void lay_token(widen_gains *g) {
  ir *b = g->w.b;
  weight_lanes *l = &g->w.lanes;
  two_float place[SPEC_MAX_AXES];
  wait_for_lanes(g); /* for those that read the one before */
  ir_branch first = ir_if(b, ir_compare_int(b, "eq", l->lane, i32(b, 0)));
  widen_load_place(g->w.body,
                   g->w.gains.own + pegen_ptx_behind_inputs(PEGEN_PTX_COLUMN_INPUTS, 0, g->w.p->spec->n_inputs), place);
  weight_lay_monomials(l, place);
  ir_end_if(b, first);
  clear_places(g);
  wait_for_lanes(g);
  weight_lay_gains(l);
  wait_for_lanes(g);
}

static void go_through_query(widen_gains *g, const row_place *place) {
  ir *b = g->w.b;
  gpu_body *t = g->w.body;
  weight_gains_set_query(&g->w, t->exprs.head);
  lay_columns(g, place);
  wait_for_lanes(g);
  if (g->w.of) {
    ir_branch wanted = ir_if(b, g->of_weights);
    lay_weight_gains(g);
    wait_for_lanes(g);
    weight_gains_give(&g->w);
    ir_end_if(b, wanted);
  }
  ir_branch wanted = ir_if(b, g->of_places);
  weight_lay_weights(&g->w.lanes);
  add_places_of_query(g);
  ir_end_if(b, wanted);
  wait_for_lanes(g);
}

/* All lanes of a warp are at the same row of their tokens. */
static void go_through_item(widen_gains *g) {
  ir *b = g->w.b;
  gpu_body *t = g->w.body;
  lay_token(g);
  row_origin origin = emit_row_origin(&t->rows, &t->owner, i64(b, 0));
  ir_value of_q = narrow(b, t->parameter[PEGEN_PTX_Q + PEGEN_PTX_TENSOR_HEADS]), row;
  ir_loop loop = gpu_begin_rows(t, &row);
  row_place place = emit_row_place(&t->rows, &origin, row);
  widen_move_row(t, &g->w.lanes, &place, both(b, g->w.valid, gpu_is_written(t, row)));
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

static void open_lanes(widen_gains *g) {
  ir *b = g->w.b;
  gpu_body *t = g->w.body;
  weight_lanes *l = &g->w.lanes;
  const widen_layout *layout = &g->w.p->layout[t->entry->dtype];
  *l = widen_lanes_of(t, g->w.p);
  l->rest = rooms_before(g->w.p, l->lanes, ROOMS);
  l->tables = widen_tables_make(l->memory, g->w.p, layout);
  g->slopes = widen_slopes_make(l->memory, &l->tables, g->w.p, layout);
  widen_tables_emit(b, l->memory, &l->tables, l->prefix);
  widen_slopes_emit(b, l->memory, &g->slopes, l->prefix);
  t->rows.exprs = l->exprs = &t->exprs;
  const char *memory = arena_printf(l->memory, "%s_tokens", l->prefix);
  ir_shared(b, memory,
            (int64_t)(PEGEN_PTX_BLOCK / l->lanes) * weight_token_bytes(g->w.p, &l->tables, l->lanes, l->rest));
  l->shared = ir_shared_address(b, memory);
  weight_gains_open(&g->w);
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const plan_widen *p = program_widen_plan(program->encode);
  gpu_body t = gpu_open(b, a, p->values, false, entry, native, host);
  widen_gains g = {.w = {.b = b, .p = p, .of = gpu_gains_of(program), .body = &t}};
  g.w.gains = (gpu_gains){.body = &t, .of = gpu_gains_of(program), .own = t.parameter + gpu_parameters(p->spec)};
  open_lanes(&g);
  t.program = program->encode;
  t.rows.streams = row_streams(b, t.parameter);
  g.of_places = ir_compare_int(b, "ne", g.w.gains.own[PEGEN_PTX_SHARES], i64(b, 0));
  g.of_weights = weight_gains_wanted(&g.w);
  ir_loop items = weight_gains_begin_items(&g.w);
  go_through_item(&g);
  ir_end_for(b, items);
  ir_return(b);
}

bool gpu_widen_gains_fit(arena *a, const plan_widen *p, const plan_gradient *of) {
  const spec *s = p->spec;
  int own = pegen_ptx_behind_inputs(PEGEN_PTX_COLUMN_INPUTS, 0, s->n_inputs) + gpu_origin_parameters(s);
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
    if (!(dtypes & 1u << dtype)) continue;
    gpu_entry like = {.of = PEGEN_LAUNCH_encode_backward,
                      .word = PEGEN_PTX_WORD_GRADIENT,
                      .kind = GPU_COLUMN_GRADIENT,
                      .emit = emit,
                      .dtype = dtype};
    like.units = lanes_of(a, p, of, &p->layout[dtype]);
    count += widen_row_entries(a, p, &like, like.units, entries + count);
  }
  return count;
}
