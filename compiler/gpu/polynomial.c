/* gpu/polynomial: a bias of attention that is a polynomial of the displacement, on a GPU; see gpu/attention.h.
 *
 * The columns that widen q and k elsewhere (plan/widen.h), of a tile at a time and in float32: no widened row leaves
 * shared memory. A query's columns are made by the lanes of gpu/weights, in memory that streamed tiles take afterwards;
 * a key's by one thread, whose powers are float32 as on processors. Positions count from the query in the middle of the
 * tile, so that what is multiplied out is hardly larger than the displacements themselves.
 */
#include "gpu/attention.h"
#include "gpu/index.h"
#include "mlir/monomial.h"

#include "kernel/launch.h"

void attend_lay_origin(attend *t, int parameter, ir_value first, int count) {
  ir *b = t->b;
  ir_value origin[SPEC_MAX_AXES];
  ir_branch one = ir_if(b, ir_compare_int(b, "eq", t->thread, i32(b, 0)));
  attend_find_origin(t, parameter, first, count, origin);
  for (int axis = 0; axis < t->p->spec->n_axes; axis++)
    ir_store(b, origin[axis], ir_offset_const(b, t->origin, 8LL * axis), 8, false);
  ir_end_if(b, one);
  ir_wait(b, IR_BARRIER_BLOCK);
}

/* A token's coordinates less the origin's. */
static two_float *displaced(attend *t, int parameter, ir_value token, two_float *place) {
  ir *b = t->b;
  const spec *s = t->p->spec;
  ir_value origin[SPEC_MAX_AXES];
  gpu_place from[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++)
    origin[axis] = ir_load(b, b->i64, ir_offset_const(b, t->origin, 8LL * axis), 8);
  gpu_places(b, s, t->parameter + parameter, t->batch, token, origin, from);
  for (int axis = 0; axis < s->n_axes; axis++) place[axis] = gpu_place_value(b, &from[axis]);
  return place;
}

/* ---- queries ---- */

static void set_lanes(attend *t, ir_value scratch) {
  ir *b = t->b;
  weight_lanes *w = &t->weights;
  const plan_widen *p = t->p->columns;
  *w = (weight_lanes){.b = b,
                      .memory = t->memory,
                      .p = p,
                      .prefix = t->entry->name,
                      .exprs = &t->exprs,
                      .shared = scratch,
                      .lanes = t->shape.token_lanes};
  w->tables = widen_tables_make(t->memory, p, NULL);
  widen_tables_emit(b, t->memory, &w->tables, w->prefix);
  w->lane = rest(b, t->thread, w->lanes);
  w->token = quotient(b, t->thread, w->lanes);
}

/* What the columns leave out of the query's scores, and its log-sum-exp has. */
static void lay_constant(attend *t, ir_value query, ir_value token) {
  ir *b = t->b;
  weight_lanes *w = &t->weights;
  two_float place[SPEC_MAX_AXES];
  ir_value is_first = ir_compare_int(b, "eq", w->lane, i32(b, 0));
  ir_branch wanted = ir_if(b, attend_lse_is_wanted(t));
  ir_wait(b, IR_BARRIER_WARP);
  ir_branch first = ir_if(b, is_first);
  weight_lay_constant_monomials(w, displaced(t, PEGEN_PTX_ATTENTION_POSITIONS, token, place));
  ir_end_if(b, first);
  ir_wait(b, IR_BARRIER_WARP);
  ir_value constant = weight_constant(w), scale = attend_scale(t);
  ir_branch one = ir_if(b, is_first);
  ir_store(b, mul(b, constant, scale), attend_constant_at(t, query), 4, false);
  ir_end_if(b, one);
  ir_wait(b, IR_BARRIER_WARP); /* the next query's weights come where the parts are */
  ir_end_if(b, wanted);
}

static const double LN_2 = 0.69314718055994530942;

ir_value attend_natural_scale(attend *t) { return mul(t->b, attend_scale(t), ir_float(t->b, t->b->f32, LN_2)); }

ir_value attend_weight_byte(attend *t, ir_value token) {
  ir *b = t->b;
  ir_value heads = t->parameter[PEGEN_PTX_ATTENTION_HEADS], tokens = t->parameter[PEGEN_PTX_ATTENTION_TOKENS];
  ir_value head = add(b, mul(b, wide(b, t->batch), heads), wide(b, t->head));
  return mul(b, add(b, mul(b, head, tokens), wide(b, token)), i64(b, 4LL * t->p->columns->p->n_weights));
}

/* Stores the weights of query `token`, where they are to be kept. The sequence may have no such query. */
static void keep_weights(attend *t, ir_value token) {
  ir *b = t->b;
  ir_value wanted = ir_compare_int(b, "ne", t->kept, i64(b, 0));
  ir_branch given = ir_if(b, both(b, wanted, less(b, token, t->tokens)));
  ir_value at = ir_pointer(b, add(b, t->kept, attend_weight_byte(t, token)));
  lane_turns turns = begin_turns(&t->weights, t->p->columns->p->n_weights);
  ir_value weight = weight_at(&t->weights, turns.index);
  ir_store(b, weight, ir_offset(b, at, wide(b, scaled(b, turns.index, 4))), 4, false);
  end_turns(&t->weights, turns);
  ir_end_if(b, given);
}

/* Columns of query `query` of the rows, which is `token` of the sequence, or another that exists. */
static void lay_query(attend *t, const attend_column_rows *rows, ir_value query, ir_value token, ir_value scale) {
  ir *b = t->b;
  weight_lanes *w = &t->weights;
  two_float place[SPEC_MAX_AXES];
  ir_branch first = ir_if(b, ir_compare_int(b, "eq", w->lane, i32(b, 0)));
  weight_lay_monomials(w, displaced(t, PEGEN_PTX_ATTENTION_POSITIONS, token, place));
  ir_end_if(b, first);
  ir_wait(b, IR_BARRIER_WARP);
  weight_lay_gains(w);
  const ir_value *inputs = t->parameter + pegen_ptx_inputs(PEGEN_PTX_ATTENTION_OPERANDS, t->p->spec->n_operands);
  emit_thread_inputs(w->exprs, inputs, t->batch, token, t->head, t->entry->dtype);
  weight_lay_weights(w);
  if (t->kept.ptr) keep_weights(t, add(b, rows->first, query));
  ir_value columns = attend_row_at(t, rows->memory, query, rows->pitch);
  lane_turns turns = begin_turns(w, t->shape.width);
  ir_value count = i32(b, w->p->n_columns),
           column = ir_select(b, below(b, turns.index, count), turns.index, count); /* what pads has no gains */
  ir_store(b, mul(b, weight_column(w, column), scale), ir_offset(b, columns, wide(b, scaled(b, turns.index, 4))), 4,
           false);
  end_turns(w, turns);
  if (attend_has_constant(t->p)) lay_constant(t, query, token);
}

void attend_query_columns(attend *t, const attend_column_rows *rows, ir_value scratch, ir_value scale) {
  ir *b = t->b;
  set_lanes(t, scratch);
  attend_lay_origin(t, PEGEN_PTX_ATTENTION_POSITIONS, rows->first, rows->count);
  int at_once = PEGEN_PTX_BLOCK / t->weights.lanes;
  ir_loop loop = ir_for(b, ir_int(b, b->i64, 0), ir_int(b, b->i64, (rows->count + at_once - 1) / at_once));
  ir_value query = add(b, t->weights.token, scaled(b, narrow(b, loop.index), at_once));
  if (rows->count % at_once) query = clamped(b, query, i32(b, rows->count)); /* the last one again */
  lay_query(t, rows, query, attend_placed_token(t, PEGEN_PTX_ATTENTION_POSITIONS, add(b, rows->first, query)), scale);
  ir_end_for(b, loop);
  ir_wait(b, IR_BARRIER_BLOCK); /* keys and scores come where the queries' columns were made */
}

/* ---- keys ---- */

static ir_value key_column(power_table *powers, const widen_column *c) {
  ir_value sum = {NULL};
  for (int i = 0; i < c->n_key; i++) {
    ir_value term = emit_monomial(powers, &c->key[i], c->key_factor[i]);
    sum = sum.ptr ? add(powers->b, sum, term) : term;
  }
  return sum;
}

void attend_columns_of_place(attend *t, const ir_value *place, ir_value *column) {
  const plan_widen *p = t->p->columns;
  power_table powers = {.b = t->b, .type = t->b->f32};
  for (int axis = 0; axis < plan_widen_coordinates(p); axis++) powers.at[axis][1] = place[axis];
  for (int c = 0; c < p->n_columns; c++) column[c] = key_column(&powers, &p->column[c]);
}
