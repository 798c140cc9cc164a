/* cpu/attention/columns: a bias that is a polynomial of the displacement, inside attention; see
 * cpu/attention/columns.h.
 *
 * The columns are those that widen q and k elsewhere (plan/widen.h). They are computed in float32, for a tile of
 * queries and a tile of keys at a time: no widened row is ever written. The driver counts positions from a query of the
 * tile, so that what is expanded is hardly larger than the displacements themselves. Weights of the queries come from a
 * function of its own, one for each number type of the inputs.
 */
#include "cpu/attention/columns.h"

#include "cpu/attention/rows.h"
#include "cpu/product.h"
#include "cpu/rotors.h"
#include "cpu/weights.h"
#include "mlir/arith.h"
#include "mlir/monomial.h"

static ir_value of_tile(ir *b, ir_value tile, size_t offset, MlirType type) {
  return ir_load(b, type, ir_offset_const(b, tile, (int64_t)offset), 8);
}

/* ---- weights ---- */

static query_row row_of(ir *b, const attention_plan *p, ir_value tile, ir_value token) {
  query_row row = {.prepared = of_tile(b, tile, offsetof(pegen_attention_tile, prepared), b->ptr)};
  for (int i = 0; i < p->spec->n_inputs; i++) {
    ir_value first = of_tile(b, tile, offsetof(pegen_attention_tile, input) + (size_t)i * sizeof(char *), b->ptr);
    ir_value stride =
        of_tile(b, tile, offsetof(pegen_attention_tile, input_token) + (size_t)i * sizeof(int64_t), b->i64);
    row.input[i] = ir_offset(b, first, mul(b, token, stride));
  }
  return row;
}

static void store_weights(ir *b, int count, ir_value at, const ir_value *weight) {
  for (int w = 0; w < count; w++)
    ir_store(b, weight[w], ir_offset_const(b, at, (int64_t)w * PEGEN_ATTENTION_QUERIES * 4), 4, false);
}

static void emit_weigh_of(weight_emitter *e, const attention_plan *p, int queries) {
  ir *b = e->b;
  int count = e->p->p->n_weights;
  ir_value tile, *weight = arena_array(e->memory, ir_value, count);
  ir_open(b, attention_name(e->memory, e->target, "weigh", e->input_dtype), "p", &tile);
  ir_loop lanes = ir_for(b, i64(b, 0), i64(b, queries));
  ir_value to = nth(b, of_tile(b, tile, offsetof(pegen_attention_tile, weights), b->ptr), lanes.index, 4);
  ir_value tokens = ir_offset_const(b, tile, offsetof(pegen_attention_tile, tokens));
  ir_value token = ir_load(b, b->i64, nth(b, tokens, lanes.index, 8), 8);
  ir_branch given = ir_if(b, ir_compare_int(b, "sge", token, i64(b, 0)));
  query_row row = row_of(b, p, tile, token);
  emit_weights(e, &row, weight);
  store_weights(b, count, to, weight);
  ir_else(b, &given);
  for (int w = 0; w < count; w++) weight[w] = ir_float(b, b->f32, 0);
  store_weights(b, count, to, weight);
  ir_end_if(b, (ir_branch){given.outer, {NULL}});
  ir_end_for(b, lanes);
  ir_return(b);
}

void emit_weigh(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes) {
  const plan_widen *columns = p->columns;
  chunk_walk walk = emit_chunks_of(b, a, columns->values, plan_tile_build(a, columns->values, target->lanes), target);
  if (columns->values->n_leaves > 0) emit_prepare(&walk);
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
    if (type != NUMBER_F32 && (!(dtypes & 1u << type) || p->spec->n_inputs == 0))
      continue; /* float32 goes with any queries */
    weight_emitter e = {
        .b = b, .memory = a, .p = columns, .target = target, .input_dtype = type, .has_table = walk.has_table};
    emit_weigh_of(&e, p, attention_shape_of(p, target).queries);
  }
}

/* ---- columns ---- */

ir_value emit_query_coordinate(const attention_emitter *e, int axis, int vector) {
  int64_t at = (int64_t)offsetof(pegen_attention_tile, positions) +
               ((int64_t)axis * PEGEN_ATTENTION_QUERIES + (int64_t)vector * e->shape.lanes) * 8;
  return ir_load(e->b, ir_vector(e->b, e->shape.lanes, e->b->f64), ir_offset_const(e->b, e->tile, at), 8);
}

ir_value emit_query_weight(const attention_emitter *e, int weight, int vector) {
  ir_value weights = ATTENTION_TILE(e, weights, e->b->ptr);
  int64_t at = ((int64_t)weight * PEGEN_ATTENTION_QUERIES + (int64_t)vector * e->shape.lanes) * 4;
  return ir_load(e->b, e->lanes, ir_offset_const(e->b, weights, at), 4);
}

/* The sum over weights of weight times gain, and the scale. */
static void emit_query_columns(const column_emitter *c, int vector, ir_value scale) {
  const attention_emitter *e = c->e;
  ir *b = e->b;
  const plan_widen *p = e->p->columns;
  power_table t = {.b = b, .type = ir_vector(b, e->shape.lanes, b->f64)};
  for (int axis = 0; axis < p->spec->n_axes; axis++) t.at[axis][1] = emit_query_coordinate(e, axis, vector);
  ir_value *sum = arena_array(e->memory, ir_value, p->n_columns);
  for (int first = 0, end; first < p->n_gains; first = end) {
    const widen_gain *of = &p->gain[first]; /* those of one weight and column are neighbours */
    ir_value gain = {NULL};
    for (end = first; end < p->n_gains && p->gain[end].weight == of->weight && p->gain[end].column == of->column;
         end++) {
      ir_value term = emit_monomial(&t, &p->gain[end].power, p->gain[end].factor);
      gain = gain.ptr ? add(b, gain, term) : term;
    }
    ir_value weight = emit_query_weight(e, of->weight, vector);
    sum[of->column] =
        emit_multiply_add(b, e->target, weight, ir_cast(b, "arith.truncf", gain, b->f32), sum[of->column]);
  }
  for (int i = 0; i < p->n_columns; i++)
    ir_store(b, mul(b, sum[i], scale), attention_at(e, c->queries, i64(b, i), vector), 4, false);
}

ir_value emit_columns_constant(const attention_emitter *e, int vector) {
  ir *b = e->b;
  const plan_widen *p = e->p->columns;
  if (!p->n_constant) return (ir_value){NULL};
  power_table t = {.b = b, .type = ir_vector(b, e->shape.lanes, b->f64)};
  for (int axis = 0; axis < p->spec->n_axes; axis++) t.at[axis][1] = emit_query_coordinate(e, axis, vector);
  ir_value sum = {NULL};
  for (int i = 0; i < p->n_constant; i++) {
    const widen_gain *of = &p->constant[i];
    ir_value gain = emit_monomial(&t, &of->power, of->factor);
    ir_value weight = ir_cast(b, "arith.extf", emit_query_weight(e, of->weight, vector), b->f64);
    ir_value term = mul(b, weight, gain);
    sum = sum.ptr ? add(b, sum, term) : term;
  }
  sum = mul(b, sum, ir_broadcast(b, t.type, ATTENTION_TILE(e, scale, b->f64)));
  return ir_cast(b, "arith.truncf", sum, b->f32);
}

column_emitter emit_columns_begin(const attention_emitter *e) {
  ir *b = e->b;
  const plan_widen *p = e->p->columns;
  column_emitter columns = {.e = e, .places = emit_key_places_begin(e)};
  columns.queries = ir_alloca(b, (int64_t)p->n_columns * e->shape.queries * 4, CACHE_LINE);
  columns.keys = ir_alloca(b, (int64_t)p->n_columns * columns.places.room * 4, CACHE_LINE);
  ir_value scale = ir_broadcast(b, e->lanes, ir_cast(b, "arith.truncf", ATTENTION_TILE(e, scale, b->f64), b->f32));
  for (int x = 0; x < e->shape.vectors; x++) emit_query_columns(&columns, x, scale);
  return columns;
}

void emit_columns_keys(const column_emitter *columns, const key_tile *t) {
  const attention_emitter *e = columns->e;
  ir *b = e->b;
  const plan_widen *p = e->p->columns;
  emit_key_places(e, &columns->places, t);
  ir_value registers = attention_groups(b, t->count, e->shape.lanes);
  ir_loop loop = ir_for(b, e->zero, registers); /* what stands past the last key is masked as scores are */
  ir_value offset = attention_mul(b, loop.index, e->shape.lanes * 4);
  power_table powers = {.b = b, .type = e->lanes};
  for (int axis = 0; axis < plan_widen_coordinates(p); axis++)
    powers.at[axis][1] = ir_load(
        b, e->lanes,
        ir_offset_const(b, ir_offset(b, columns->places.narrow, offset), (int64_t)axis * columns->places.room * 4), 4);
  for (int c = 0; c < p->n_columns; c++) {
    ir_value sum = {NULL};
    for (int i = 0; i < p->column[c].n_key; i++) {
      ir_value term = emit_monomial(&powers, &p->column[c].key[i], p->column[c].key_factor[i]);
      sum = sum.ptr ? add(b, sum, term) : term;
    }
    ir_store(b, sum, ir_offset_const(b, ir_offset(b, columns->keys, offset), (int64_t)c * columns->places.room * 4), 4,
             false);
  }
  ir_end_for(b, loop);
}

void emit_columns_products(const column_emitter *columns, ir_value key, ir_value *sums) {
  const attention_emitter *e = columns->e;
  ir *b = e->b;
  int n = e->shape.rows, vectors = e->shape.vectors;
  ir_value from = nth(b, columns->keys, key, 4), now[ATTENTION_MAX_SUMS], next[ATTENTION_MAX_SUMS],
           q[ATTENTION_MAX_VECTORS];
  ir_loop loop = ir_for_with(b, e->zero, i64(b, e->p->columns->n_columns), n * vectors, sums, now);
  ir_value column = nth(b, from, loop.index, columns->places.room * 4);
  for (int x = 0; x < vectors; x++) q[x] = ir_load(b, e->lanes, attention_at(e, columns->queries, loop.index, x), 4);
  for (int r = 0; r < n; r++) {
    ir_value k = ir_broadcast(b, e->lanes, ir_load(b, b->f32, ir_offset_const(b, column, r * 4), 4));
    for (int x = 0; x < vectors; x++) next[r * vectors + x] = attention_multiply_add(b, k, q[x], now[r * vectors + x]);
  }
  ir_end_for_with(b, loop, n * vectors, next, sums);
}
