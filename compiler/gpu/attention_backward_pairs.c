/* gpu/attention_backward_pairs: weights and gains of a tile of pairs, and sums by them; see gpu/attention_backward.h.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"
#include "mlir/exp2.h"

static ir_value zero(const attend *t) { return ir_float(t->b, t->b->f32, 0); }
static int n_pairs(const attend *t) { return t->shape.rows * t->shape.columns; }

static ir_value query_of(attend_gradient *g, const attend_pair_tile *p, int row, int column) {
  return p->row ? attend_own_row(&g->t, row) : attend_own_column(&g->t, column);
}
static ir_value key_of(attend_gradient *g, const attend_pair_tile *p, int row, int column) {
  return p->row ? attend_own_column(&g->t, column) : attend_own_row(&g->t, row);
}

/* Tokens of a query and a key of the tile. */
static ir_value query_token(attend_gradient *g, const attend_pair_tile *p, ir_value query) {
  return add(g->t.b, p->row ? g->t.first : p->first, query);
}
static ir_value key_token(attend_gradient *g, const attend_pair_tile *p, ir_value key) {
  return add(g->t.b, p->row ? p->first : g->t.first, key);
}

static ir_value bias_of(attend_gradient *g, const attend_pair_tile *p, ir_value query, ir_value key) {
  ir_value of_query = query_token(g, p, query), of_key = key_token(g, p, key);
  return attend_pair(&g->t, query, of_query, key, of_key);
}

/* Biases that are long, one after the other in a loop, laid where what their scores gain will be. */
static void lay_biases(attend_gradient *g, const attend_pair_tile *p) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_loop pairs = ir_for(b, i64(b, 0), i64(b, n_pairs(t)));
  ir_value pair = narrow(b, pairs.index);
  ir_value row = attend_row_of_thread(t, quotient(b, pair, t->shape.columns)),
           column = attend_column_of_thread(t, rest(b, pair, t->shape.columns));
  ir_value bias = p->row ? bias_of(g, p, row, column) : bias_of(g, p, column, row);
  ir_store(b, bias, attend_score_at(t, row, column), 4, false);
  ir_end_for(b, pairs);
}

static ir_value with_bias(attend_gradient *g, const attend_pair_tile *p, int row, int column, ir_value score) {
  attend *t = &g->t;
  ir_value query = query_of(g, p, row, column), key = key_of(g, p, row, column);
  if (attend_pair_is_short(t->p)) return attend_paired(t, score, bias_of(g, p, query, key));
  ir_value own_row = attend_own_row(t, row), own_column = attend_own_column(t, column);
  return attend_paired(t, score, ir_load(t->b, t->b->f32, attend_score_at(t, own_row, own_column), 4));
}

/* A polynomial's columns come first: pairs that are not encoded then begin at 0 again. */
static void add_columns(attend_gradient *g, attend_pair_tile *p) {
  attend *t = &g->t;
  ir *b = t->b;
  attend_add_products(t, g->own[ATTEND_OF_KEYS], g->passing[ATTEND_OF_KEYS], t->shape.columns_at, t->shape.width,
                      ATTEND_QUAD, p->weight);
  for (int i = 0; i < n_pairs(t); i++) {
    int row = i / t->shape.columns, column = i % t->shape.columns;
    ir_value query = query_token(g, p, query_of(g, p, row, column)), key = key_token(g, p, key_of(g, p, row, column));
    ir_value encoded = attend_encoded(t, query, key);
    if (encoded.ptr) p->weight[i] = ir_select(b, encoded, p->weight[i], zero(t));
  }
}

void attend_make_weights(attend_gradient *g, attend_pair_tile *p) {
  attend *t = &g->t;
  ir *b = t->b;
  for (int i = 0; i < n_pairs(t); i++) p->weight[i] = zero(t);
  if (attend_has_columns(t->p)) add_columns(g, p);
  attend_add_products(t, g->own[ATTEND_OF_KEYS], g->passing[ATTEND_OF_KEYS], 0, t->p->head_dim, ATTEND_QUAD, p->weight);
  bool adds = t->p->bias || t->p->matrix;
  if (adds && !attend_pair_is_short(t->p)) lay_biases(g, p);
  for (int i = 0; i < n_pairs(t) && adds; i++)
    p->weight[i] = with_bias(g, p, i / t->shape.columns, i % t->shape.columns, p->weight[i]);
  attend_finish_scores(g, p);
  for (int i = 0; i < n_pairs(t); i++) {
    int row = i / t->shape.columns, column = i % t->shape.columns;
    const attend_query_facts *of = p->row ? &p->row[row] : &p->column[column];
    ir_value key = key_token(g, p, key_of(g, p, row, column));
    ir_value weight = emit_exp2(b, sub(b, p->weight[i], of->lse));
    p->weight[i] = ir_select(b, less(b, key, of->limit), weight, zero(t));
  }
}

void attend_make_gains(attend_gradient *g, attend_pair_tile *p) {
  attend *t = &g->t;
  ir *b = t->b;
  for (int i = 0; i < n_pairs(t); i++) p->gained[i] = zero(t);
  attend_add_products(t, g->own[ATTEND_OF_VALUES], g->passing[ATTEND_OF_VALUES], 0, t->p->value_dim, ATTEND_QUAD,
                      p->gained);
  for (int i = 0; i < n_pairs(t); i++) {
    const attend_query_facts *of = p->row ? &p->row[i / t->shape.columns] : &p->column[i % t->shape.columns];
    ir_value gain = mul(b, p->weight[i], sub(b, p->gained[i], of->less));
    p->gained[i] = ir_select(b, ir_compare_float(b, "une", p->weight[i], zero(t)), gain, zero(t));
  }
}

void attend_lay_numbers(attend_gradient *g, const ir_value *of_pairs) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_wait(b, IR_BARRIER_WARP);
  for (int i = 0; i < n_pairs(t); i++) {
    ir_value row = attend_own_row(t, i / t->shape.columns), column = attend_own_column(t, i % t->shape.columns);
    ir_store(b, of_pairs[i], attend_score_at(t, row, column), 4, false);
  }
  ir_wait(b, IR_BARRIER_WARP);
}

void attend_add_sums(attend_gradient *g, ir_value wanted, int rows, ir_value *sums) {
  ir *b = g->t.b;
  int count = g->t.shape.rows * g->shape.quads[rows];
  MlirType types[ATTEND_MOST_SUMS];
  ir_value more[ATTEND_MOST_SUMS];
  for (int i = 0; i < count; i++) {
    types[i] = ir_type(sums[i]);
    more[i] = sums[i];
  }
  ir_choice choice = ir_choose(b, wanted, count, types);
  attend_add_rows(&g->t, g->passing[rows], g->shape.quads[rows], more);
  ir_choose_else(b, &choice, count, more);
  ir_end_choose(b, choice, count, sums, sums);
}
