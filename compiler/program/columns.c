/* program/columns: see program/columns.h. */
#include "program/columns.h"

#include "program/encode.h"

/* ---- expressions ---- */

/* A polynomial in what is counted from the origin. */
static const expr *power(expr_pool *pool, const spec *s, const monomial *m, double factor) {
  const expr *x = expr_const(pool, factor);
  for (int axis = 0; axis < s->n_axes; axis++) {
    const expr *r = expr_position(pool, axis), *origin = expr_const(pool, s->polynomial->origin[axis]);
    for (int i = 0; i < m->power[axis]; i++) x = expr_mul(pool, x, expr_sub(pool, r, origin));
  }
  return x;
}

const expr **columns_of_keys(arena *a, const plan_widen *p) {
  expr_pool *pool = p->spec->pool;
  const expr **key = arena_array(a, const expr *, p->n_columns + 1);
  for (int c = 0; c < p->n_columns; c++) {
    key[c] = expr_const(pool, 0);
    for (int i = 0; i < p->column[c].n_key; i++)
      key[c] = expr_add(pool, key[c], power(pool, p->spec, &p->column[c].key[i], p->column[c].key_factor[i]));
  }
  return key;
}

const expr **columns_gains(arena *a, const plan_widen *p) {
  expr_pool *pool = p->spec->pool;
  int count = p->p->n_weights * p->n_columns;
  const expr **gain = arena_array(a, const expr *, count + 1);
  for (int i = 0; i < count; i++) gain[i] = expr_const(pool, 0);
  for (int i = 0; i < p->n_gains; i++) {
    const expr **at = &gain[p->gain[i].weight * p->n_columns + p->gain[i].column];
    *at = expr_add(pool, *at, power(pool, p->spec, &p->gain[i].power, p->gain[i].factor));
  }
  return gain;
}

const int *columns_of_lanes(arena *a, const widen_layout *l, bool of_query) {
  int *column = arena_array(a, int, l->n_lanes + 1);
  for (int i = 0; i < l->n_lanes; i++)
    column[i] = (of_query ? l->lane[i].low_query : l->lane[i].low_key) ? -1 : l->lane[i].column;
  return column;
}

int columns_sum_weights(program_builder *b, const plan_widen *p, int prepared) {
  expr_pool *pool = p->spec->pool;
  int count = p->p->n_weights;
  const expr **weight = arena_array(b->memory, const expr *, count + 1), **terms = plan_widen_weights(b->memory, p);
  for (int w = 0; w < count; w++) weight[w] = expr_unary(pool, EXPR_NARROW, terms[w]);
  return program_sum(b, program_eval(b, p->values, weight, count, &prepared, prepared >= 0));
}

/* ---- gradients ---- */

typedef struct backward {
  program_builder b;
  const plan_widen *p;
  const plan_gradient *of; /* of weights; NULL: they have none */
  const widen_layout *layout;
  int in, out;                      /* streams */
  int operands, inputs, positions;  /* arrays; -1: none */
  const expr **weight, **column;    /* leaves that stand for a query's weights, and for what its columns gain */
  int prepared, gains;              /* values */
  int of_boundaries, of_places[2];  /* values of rows: what operands gain, and coordinates of q and k; -1: none */
} backward;

/* Further leaves than those of weights' gradients. */
static const expr **name_leaves(backward *w, int *next, int count) {
  const expr **leaf = arena_array(w->b.memory, const expr *, count + 1);
  for (int i = 0; i < count; i++) leaf[i] = expr_cotangent(w->p->spec->pool, (*next)++, DEPENDS_QUERY);
  return leaf;
}

static const expr *narrowed(expr_pool *pool, const expr *x) { return expr_unary(pool, EXPR_NARROW, x); }

/* The token's, by which weights became columns. */
static int eval_gains(backward *w) {
  const plan_widen *p = w->p;
  int count = p->p->n_weights * p->n_columns;
  const expr **gain = columns_gains(w->b.memory, p);
  for (int i = 0; i < count; i++) gain[i] = narrowed(p->spec->pool, gain[i]);
  return program_eval_once(&w->b, p->values, gain, count);
}

/* What inputs and operands gain of a query's weights. */
static void give_weights(backward *w, int row, const int *column) {
  program_builder *b = &w->b;
  const plan_gradient *g = w->of;
  const expr **tau = arena_array(b->memory, const expr *, g->n_torques + 1),
             **gained = arena_array(b->memory, const expr *, g->n_inputs + 1);
  for (int i = 0; i < g->n_torques; i++) tau[i] = g->tau[i]->arg[0]; /* what is rounded there */
  for (int i = 0; i < g->n_inputs; i++) gained[i] = g->of_input[i].gradient;
  int weights = program_gather(b, row, w->gains, column, w->layout->n_lanes, tau, g->n_torques);
  if (w->operands >= 0)
    w->of_boundaries = program_eval(b, g->token, g->of_boundary[TORQUE_OF_Y], g->n_boundaries, &weights, 1);
  if (w->inputs >= 0) program_write(b, w->inputs, program_eval(b, g->token, gained, g->n_inputs, &weights, 1));
}

/* What the coordinates of a row gain of its columns: values and, of a query, what they are multiplied by. */
static int eval_places(backward *w, const expr *const *value, const expr *const *factor, int count, const int *used,
                       int n_used) {
  const spec *s = w->p->spec;
  arena *a = w->b.memory;
  adjoint_output *outputs = arena_array(a, adjoint_output, count + 1);
  const expr *axes[SPEC_MAX_AXES], **gained = arena_array(a, const expr *, s->n_axes);
  for (int i = 0; i < count; i++) {
    const expr *gain = w->column[i % w->p->n_columns];
    outputs[i] = (adjoint_output){value[i], factor ? expr_mul(s->pool, gain, factor[i / w->p->n_columns]) : gain};
  }
  for (int axis = 0; axis < s->n_axes; axis++) axes[axis] = expr_position(s->pool, axis);
  adjoint_of(a, s->pool, outputs, count, axes, s->n_axes, gained);
  return program_eval_once_of(&w->b, gained, s->n_axes, used, n_used);
}

static void give_places(backward *w, program_part tensor, int row, const int *column) {
  program_builder *b = &w->b;
  const plan_widen *p = w->p;
  int used[2], count = p->n_columns, n_used = 1;
  used[0] = program_gather(b, row, -1, column, w->layout->n_lanes, w->column, count);
  if (tensor == PART_K) {
    w->of_places[1] = eval_places(w, columns_of_keys(b->memory, p), NULL, count, used, n_used);
    return;
  }
  used[n_used++] = columns_sum_weights(b, p, w->prepared);
  program_name_sum(b, used[1], w->weight);
  w->of_places[0] = eval_places(w, columns_gains(b->memory, p), w->weight, p->p->n_weights * count, used, n_used);
}

static void turn_rows(backward *w, program_part tensor) {
  program_builder *b = &w->b;
  int depth = b->depth;
  const int *column = columns_of_lanes(b->memory, w->layout, tensor == PART_Q);
  program_for(b, SPACE_TENSORS, tensor);
  program_for_rows(b);
  int row = program_load(b, w->in);
  program_store(b, w->out, program_take(b, row, w->p->spec->head_dim));
  if (w->of && tensor == PART_Q) give_weights(w, row, column);
  give_places(w, tensor, row, column);
  program_end_for(b, depth);
}

/* Sums over the rows of a token, of queries and of keys. */
static void write_places(backward *w, int *next) {
  program_builder *b = &w->b;
  const spec *s = w->p->spec;
  const expr **of[2], **sum = arena_array(b->memory, const expr *, s->n_axes);
  int reduced[2];
  for (int tensor = 0; tensor < 2; tensor++) {
    of[tensor] = name_leaves(w, next, s->n_axes);
    reduced[tensor] = program_reduce(b, w->of_places[tensor], SPACES_OF_ROW & ~IN(TOKENS), false, of[tensor]);
  }
  for (int axis = 0; axis < s->n_axes; axis++) sum[axis] = expr_add(s->pool, of[0][axis], of[1][axis]);
  program_write(b, w->positions, program_eval_once_of(b, sum, s->n_axes, reduced, 2));
}

/* What operands gain, element by element of each leaf; it is the driver that adds it to where the leaf was read. */
static void write_operands(backward *w) {
  program_builder *b = &w->b;
  const plan_gradient *g = w->of;
  const expr **gained = arena_array(b->memory, const expr *, g->n_scatters + 1);
  for (int i = 0; i < g->n_scatters; i++) gained[i] = g->scatter[i].gradient;
  unsigned apart = w->p->values->per_head ? IN(HEADS) : 0;
  if (apart) program_for(b, SPACE_HEADS, PART_ALL);
  int sums = program_reduce(b, w->of_boundaries, SPACES_OF_ROW & ~apart, false, g->sum);
  program_write(b, w->operands, program_eval(b, g->leaves, gained, g->n_scatters, &sums, 1));
  program_end_for(b, 0);
}

static void add_arrays(backward *w) {
  const plan_gradient *g = w->of;
  unsigned apart = w->p->values->per_head ? IN(HEADS) : 0;
  w->operands = g && g->n_boundaries ? program_array_out(&w->b, "operands'", apart) : -1;
  w->positions = program_array_out(&w->b, "positions'", IN(TOKENS));
  w->inputs = g && g->n_inputs ? program_array_out(&w->b, "inputs'", SPACES_OF_ROW) : -1;
}

static void name_values(backward *w, int *next) {
  w->weight = name_leaves(w, next, w->p->p->n_weights);
  w->column = name_leaves(w, next, w->p->n_columns);
}

const program *columns_backward(arena *a, const plan_widen *p) {
  const spec *s = p->spec;
  backward w = {.b = program_begin(a, s, "encode_backward"),
                .p = p,
                .of = plan_widen_gradient(a, p),
                .layout = &p->layout[NUMBER_F32]};
  program_builder *b = &w.b;
  int next = TORQUE_MOST + p->p->n_weights + (w.of ? w.of->n_boundaries : 0);
  w.in = program_stream_in(b, "y'", w.layout->out_dim);
  w.out = program_stream_out(b, "x'", s->head_dim, -1);
  add_arrays(&w);
  name_values(&w, &next);
  w.prepared = encode_prepared(b, p->values);
  if (encode_for_skipped(b)) program_store(b, w.out, program_take(b, program_load(b, w.in), s->head_dim));
  program_end_for(b, 0);
  encode_for_tokens(b, false);
  w.gains = w.of ? eval_gains(&w) : -1;
  turn_rows(&w, PART_Q);
  turn_rows(&w, PART_K);
  write_places(&w, &next);
  program_end_for(b, 0);
  if (w.operands >= 0) write_operands(&w);
  return b->p;
}
