/* forms/polynomial: a bias polynomial in the displacement, reproduced by columns that widen q and k; see forms/form.h.
 *
 *   spec -> polynomial (weights and shapes) -> plan/widen (columns)
 */
#include "forms/form.h"
#include "plan/widen.h"
#include "program/encode.h"

#include "kernel/loop.h"

static bool takes(const spec *s) { return s->polynomial && !s->pairwise; }

static void *build(arena *a, const spec *s) { return plan_widen_build(a, s); }

static void print(FILE *out, const void *plan) { plan_widen_print(out, plan); }

/* ---- programs: of rows of float32, in which no column is split ---- */

/* A polynomial in what is counted from the origin. */
static const expr *power(expr_pool *pool, const spec *s, const monomial *m, double factor) {
  const expr *x = expr_const(pool, factor);
  for (int axis = 0; axis < s->n_axes; axis++) {
    const expr *r = expr_position(pool, axis), *origin = expr_const(pool, s->polynomial->origin[axis]);
    for (int i = 0; i < m->power[axis]; i++) x = expr_mul(pool, x, expr_sub(pool, r, origin));
  }
  return x;
}

/* A token's, which become channels of its keys. */
static int eval_keys(program_builder *b, const plan_widen *p) {
  expr_pool *pool = p->spec->pool;
  const expr **key = arena_array(b->memory, const expr *, p->n_columns + 1);
  for (int c = 0; c < p->n_columns; c++) {
    const expr *sum = expr_const(pool, 0);
    for (int i = 0; i < p->column[c].n_key; i++)
      sum = expr_add(pool, sum, power(pool, p->spec, &p->column[c].key[i], p->column[c].key_factor[i]));
    key[c] = expr_unary(pool, EXPR_NARROW, sum);
  }
  return program_eval_once(b, p->values, key, p->n_columns);
}

/* By which weights become channels of its queries: [weights][columns]. */
static int eval_gains(program_builder *b, const plan_widen *p) {
  expr_pool *pool = p->spec->pool;
  int count = p->p->n_weights * p->n_columns;
  const expr **gain = arena_array(b->memory, const expr *, count + 1);
  for (int i = 0; i < count; i++) gain[i] = expr_const(pool, 0);
  for (int i = 0; i < p->n_gains; i++) {
    const expr **at = &gain[p->gain[i].weight * p->n_columns + p->gain[i].column];
    *at = expr_add(pool, *at, power(pool, p->spec, &p->gain[i].power, p->gain[i].factor));
  }
  for (int i = 0; i < count; i++) gain[i] = expr_unary(pool, EXPR_NARROW, gain[i]);
  return program_eval_once(b, p->values, gain, count);
}

/* A query's: of every term what its products are, then their sums over terms. */
static int sum_weights(program_builder *b, const plan_widen *p, int prepared) {
  expr_pool *pool = p->spec->pool;
  const expr **weight = arena_array(b->memory, const expr *, p->p->n_weights + 1);
  for (int w = 0; w < p->p->n_weights; w++) {
    const expr *sum = expr_const(pool, 0);
    for (int k = p->first_product[w]; k < p->first_product[w + 1]; k++) {
      int query = p->product_query[k];
      sum = expr_add(pool, sum, query < 0 ? p->fixed[k] : expr_mul(pool, p->query[query], p->fixed[k]));
    }
    weight[w] = expr_unary(pool, EXPR_NARROW, sum);
  }
  return program_sum(b, program_eval(b, p->values, weight, p->p->n_weights, &prepared, prepared >= 0));
}

/* Which column each channel more is; those that hold what rounding took have nothing here. */
static const int *columns_of(arena *a, const widen_layout *l, bool of_query) {
  int *column = arena_array(a, int, l->n_lanes + 1);
  for (int i = 0; i < l->n_lanes; i++)
    column[i] = (of_query ? l->lane[i].low_query : l->lane[i].low_key) ? -1 : l->lane[i].column;
  return column;
}

static const program *encode_program(arena *a, const void *of) {
  const plan_widen *p = of;
  const spec *s = p->spec;
  const widen_layout *l = &p->layout[NUMBER_F32];
  const int *of_query = columns_of(a, l, true), *of_key = columns_of(a, l, false);
  program_builder b = program_begin(a, s, "encode");
  int x = program_stream_in(&b, "x", s->head_dim), y = program_stream_out(&b, "y", l->out_dim, -1);
  int prepared = encode_prepared(&b, p->values);
  if (encode_for_skipped(&b))
    program_store(&b, y, program_columns(&b, p, program_load(&b, x), -1, -1, of_key, l->n_lanes));
  program_end_for(&b, 0);
  encode_for_tokens(&b, false);
  int keys = eval_keys(&b, p), gains = eval_gains(&b, p), token = b.depth;
  for (int tensor = PART_Q; tensor <= PART_K; tensor++) {
    program_for(&b, SPACE_TENSORS, (program_part)tensor);
    program_for_rows(&b);
    int row = program_load(&b, x);
    if (tensor == PART_K) row = program_columns(&b, p, row, keys, -1, of_key, l->n_lanes);
    else row = program_columns(&b, p, row, sum_weights(&b, p, prepared), gains, of_query, l->n_lanes);
    program_store(&b, y, row);
    program_end_for(&b, token);
  }
  program_end_for(&b, 0);
  return b.p;
}

static int per_head(const void *of) {
  const plan_widen *p = of;
  return p->values->per_head ? PEGEN_PER_HEAD_QUERIES : PEGEN_PER_HEAD_NONE;
}

static int out_dim(arena *a, const void *of, int dtype, const char ***columns) {
  const plan_widen *p = of;
  const widen_layout *l = &p->layout[dtype];
  *columns = arena_array(a, const char *, l->n_lanes + 1);
  for (int i = 0; i < l->n_lanes; i++) (*columns)[i] = plan_widen_lane_text(a, p, l, i);
  return l->out_dim;
}

const form form_polynomial = {
    .kind = FORM_POLYNOMIAL,
    .name = "polynomial",
    .entries = {.encode = "pegen_driver_widen",
                .workspace = "pegen_driver_workspace",
                .encode_backward = "pegen_driver_widen_backward",
                .encode_backward_finish = "pegen_driver_widen_backward_finish",
                .encode_backward_workspace = "pegen_driver_widen_backward_workspace"},
    .takes = takes,
    .plan = build,
    .print = print,
    .programs = {{"encode", encode_program}},
    .per_head = per_head,
    .out_dim = out_dim,
};
