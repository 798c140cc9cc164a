/* Tile programs, interpreted, against the reference: out, log-sum-exp, dq, dk and dv of every description of attention
 * whose pairs are a score of q . k, of rows as they are, turned once each, or rotated pair by pair, with its variants,
 * behind tile_in_turn and tile_pipeline, by tiles of several sizes; and what operands, inputs and coordinates gain of
 * a score by pairs. A bias that is a polynomial is part of the score, and once more columns beside the product. Rows
 * that are turned are so in the program, and once more behind tile_apart by tile_turn.
 */
#include "algebra/relative.h"
#include "interpret/tile.h"
#include "plan/widen.h"
#include "scoped.h"
#include "test.h"
#include "variants.h"
#include "verify/reference.h"
#include "verify/reference_gradient_attention.h"

#include <math.h>
#include <string.h>

enum { MOST_HEADS = 3, LEAST_DESCRIPTIONS = 20 };

/* The bound of errors of sums of long doubles, in units of the largest score (1 at least). For gradients it is times
 * the sum of absolute values. */
static const long double BOUND = 0x1p-52L;

static int described; /* descriptions that were compared */

/* Scales and rows are multiples of powers of two, so that a product is exact, and what it is rounded to for an
 * expression's leaf the same here and in the reference. */
static const double SCALE = 0.25, STEP = 1.0 / 32;

typedef struct sizes {
  int64_t queries, keys;
  bool causal;
  int own, streamed;
} sizes;

/* Tiles that divide the tokens and such that do not, one tile of all, more queries than keys. */
static const sizes all_sizes[] = {
    {13, 21, false, 4, 5}, {13, 21, true, 8, 3}, {16, 16, true, 4, 8}, {9, 4, true, 3, 3}, {7, 5, false, 16, 32}};

typedef struct fixture {
  arena *memory;
  const spec *spec;
  const sizes *sizes;
  uint64_t random;
  const double *positions, *k_positions;
  trial_operands operands;
  const double *inputs[SPEC_MAX_INPUTS]; /* [queries or keys][size] */
  double *rows[TILE_TENSOR_COUNT];       /* of q, k, v, dout */
  double *g_lse;
  int head;
  const plan_widen *widen; /* products have the columns of it; NULL: none */
  long double *columns[2]; /* of queries and keys, [n_columns] */
  long double *constant;   /* [queries]: what columns leave out */
  const struct gains *given; /* where the program at hand gives what scores gain, */
  bool owns_keys;            /* to tokens of this side */
} fixture;

static int64_t tokens_of(const fixture *f, tile_tensor tensor) {
  return tile_is_of_queries(tensor) ? f->sizes->queries : f->sizes->keys;
}

static int width_of(const fixture *f, tile_tensor tensor) {
  if (tile_is_of_columns(tensor)) return f->widen ? f->widen->n_columns : 0;
  return tile_width_of(tensor) == TILE_CHANNELS ? f->spec->head_dim : f->spec->pairwise->value_dim;
}

static double *fill(fixture *f, int64_t count) {
  double *values = arena_array(f->memory, double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = STEP * rint(random_uniform(&f->random, -1, 1) / STEP);
  return values;
}

/* Masks have edges, tables are of whole steps. */
static const double *places(fixture *f, int64_t count) {
  const spec *s = f->spec;
  double *at = arena_array(f->memory, double, count * s->n_axes + 1);
  for (int64_t i = 0; i < count * s->n_axes; i++) at[i] = random_below(&f->random, 9);
  for (int64_t n = s->skip_tokens; n < count && s->grid[0]; n++) reference_grid(s, n, at + n * s->n_axes);
  return at;
}

/* Numbers of a token's row of an input: of pairs one for each key. */
static int64_t row_size(const fixture *f, int input) {
  const spec_input *in = &f->spec->input[input];
  return spec_input_is_pair(in) ? f->sizes->keys : spec_input_numbers(in);
}

static void fill_call(fixture *f) {
  static const tile_tensor given[] = {TILE_Q, TILE_K, TILE_V, TILE_G_OUT};
  const spec *s = f->spec;
  f->positions = places(f, f->sizes->queries);
  f->k_positions = places(f, f->sizes->keys);
  f->operands = trial_random_operands(f->memory, s, NUMBER_F32, &f->random);
  for (int i = 0; i < s->n_inputs; i++)
    f->inputs[i] = fill(f, (s->input[i].of_keys ? f->sizes->keys : f->sizes->queries) * row_size(f, i));
  for (int i = 0; i < 4; i++) f->rows[given[i]] = fill(f, tokens_of(f, given[i]) * width_of(f, given[i]));
  f->g_lse = fill(f, f->sizes->queries);
}

/* ---- the reference's side ---- */

static reference_query query_of(const fixture *f, int64_t token, const double **inputs) {
  const spec *s = f->spec;
  int64_t keys = f->sizes->keys, index = token + keys - f->sizes->queries,
          visible = f->sizes->causal ? index + 1 : keys;
  for (int i = 0; i < s->n_inputs; i++) inputs[i] = f->inputs[i] + (s->input[i].of_keys ? 0 : token * row_size(f, i));
  return (reference_query){.q = f->rows[TILE_Q] + token * s->head_dim,
                           .position = f->positions + token * s->n_axes,
                           .token = token,
                           .index = index,
                           .k = f->rows[TILE_K],
                           .v = f->rows[TILE_V],
                           .positions = f->k_positions,
                           .keys = keys,
                           .visible = visible < 0 ? 0 : visible,
                           .head = f->head,
                           .scale = SCALE,
                           .operands = f->operands.values,
                           .inputs = inputs};
}

/* ---- columns ---- */

static long double weight_of(const fixture *f, const polynomial_weight *weight, const reference_query *query) {
  long double sum = 0;
  for (int term = 0; term < f->spec->polynomial->n_terms; term++)
    for (int i = 0; i < weight->n_products; i++) {
      expr_environment env = {.head = f->head,
                              .block = term,
                              .blocks = f->spec->n_blocks,
                              .operands = query->operands,
                              .inputs = query->inputs};
      const polynomial_product *product = &weight->product[i];
      long double of_query = product->query ? expr_eval_long(product->query, &env) : 1;
      sum += of_query * expr_eval_long(product->fixed, &env);
    }
  return sum;
}

/* Positions are small whole numbers, and monomials of them exact. Prefix tokens have columns of 0. */
static void make_columns(fixture *f) {
  const spec *s = f->spec;
  const plan_widen *w = f->widen;
  int n = w->n_columns;
  f->columns[0] = arena_array(f->memory, long double, f->sizes->queries *n + 1);
  f->columns[1] = arena_array(f->memory, long double, f->sizes->keys *n + 1);
  f->constant = arena_array(f->memory, long double, f->sizes->queries + 1);
  for (int64_t token = 0; token < f->sizes->queries; token++) {
    const double *inputs[SPEC_MAX_INPUTS];
    reference_query query = query_of(f, token, inputs);
    if (s->skip_tokens && query.index < s->skip_tokens) continue;
    for (int i = 0; i < w->n_gains; i++)
      f->columns[0][token * n + w->gain[i].column] += weight_of(f, &w->p->weight[w->gain[i].weight], &query) *
                                                      w->gain[i].factor *
                                                      monomial_value(&w->gain[i].power, s->n_axes, query.position);
    for (int i = 0; i < w->n_constant; i++)
      f->constant[token] += weight_of(f, &w->p->weight[w->constant[i].weight], &query) * w->constant[i].factor *
                            monomial_value(&w->constant[i].power, s->n_axes, query.position);
  }
  for (int64_t key = s->skip_tokens; key < f->sizes->keys; key++)
    for (int c = 0; c < n; c++)
      for (int i = 0; i < w->column[c].n_key; i++)
        f->columns[1][key * n + c] += w->column[c].key_factor[i] *
                                      monomial_value(&w->column[c].key[i], s->n_axes, f->k_positions + key * s->n_axes);
}

/* ---- pairs ---- */

/* A pair as an expression's leaves read it; product: scale q . k with a polynomial's bias. */
typedef struct pair {
  double at[SPEC_MAX_PLACES];
  const double *own[SPEC_MAX_INPUTS], *inputs[SPEC_MAX_INPUTS];
  reference_query query;
  expr_environment env;
  long double product;
} pair;

static void set_pair(const fixture *f, long double product, int64_t query, int64_t key, pair *p) {
  const spec *s = f->spec;
  p->query = query_of(f, query, p->own);
  reference_score_places(s, &p->query, key, product, p->at);
  reference_pair_inputs(s, &p->query, key, p->inputs);
  p->product = product;
  if (f->widen) p->product += SCALE * f->constant[query];
  else if (s->polynomial) p->product += SCALE * reference_bias(s, p->at, p->query.operands, p->own, f->head);
  p->at[SPEC_OF_SCORE] = (double)p->product;
  p->env = (expr_environment){.head = f->head,
                              .blocks = expr_pool_blocks(s->pool),
                              .positions = p->at,
                              .operands = p->query.operands,
                              .inputs = p->inputs};
}

static long double score(void *context, long double product, int64_t query, int64_t key) {
  const fixture *f = context;
  const spec_pairwise *of = f->spec->pairwise;
  pair p;
  product *= SCALE;
  set_pair(f, product, query, key, &p);
  if (key >= p.query.visible) return -INFINITY;
  if (reference_pair_is_plain(f->spec, &p.query, key)) return product;
  if (of->score) return expr_eval_long(of->score, &p.env);
  return of->bias ? p.product + expr_eval_long(of->bias, &p.env) : p.product;
}

/* By dual numbers. */
static long double derivative(void *context, long double product, int64_t query, int64_t key) {
  const fixture *f = context;
  const spec_pairwise *of = f->spec->pairwise;
  pair p;
  gradient_sum at[SPEC_MAX_PLACES] = {{0, 0}}, one = {1, 1};
  set_pair(f, SCALE * product, query, key, &p);
  if (!of->score || reference_pair_is_plain(f->spec, &p.query, key)) return 1;
  reference_expr_backward(f->spec->pool, &p.env, &of->score, 1, &one, &(reference_gains){.position = at});
  return at[SPEC_OF_SCORE].value;
}

/* What operands, inputs and coordinates gain. */
typedef struct gains {
  gradient_sum **operand, *input[SPEC_MAX_INPUTS], *position[2]; /* of queries, of keys */
} gains;

static int64_t input_count(const fixture *f, int input) {
  return (f->spec->input[input].of_keys ? f->sizes->keys : f->sizes->queries) * row_size(f, input);
}

static gains no_gains(const fixture *f) {
  const spec *s = f->spec;
  gains g = {.operand = reference_operand_sums(f->memory, s)};
  g.position[0] = arena_array(f->memory, gradient_sum, f->sizes->queries * s->n_axes + 1);
  g.position[1] = arena_array(f->memory, gradient_sum, f->sizes->keys * s->n_axes + 1);
  for (int i = 0; i < s->n_inputs; i++) g.input[i] = arena_array(f->memory, gradient_sum, input_count(f, i) + 1);
  return g;
}

/* A displacement is the key's coordinate less the query's; inputs are rows of the one or of the other. */
static void give(void *context, unsigned to, long double gained, long double product, int64_t query, int64_t key) {
  const fixture *f = context;
  const spec *s = f->spec;
  const expr *root = s->pairwise->score ? s->pairwise->score : s->pairwise->bias;
  pair p;
  gradient_sum at[SPEC_MAX_PLACES] = {{0, 0}}, g = {gained, fabsl(gained)}, *input[SPEC_MAX_INPUTS],
               others[SPEC_MAX_HEAD_DIM];
  set_pair(f, SCALE * product, query, key, &p);
  if (!root || reference_pair_is_plain(s, &p.query, key)) return;
  for (int i = 0; i < s->n_inputs; i++) {
    bool own = to & TILE_OF_TOKENS && s->input[i].of_keys == f->owns_keys;
    int64_t at_key = spec_input_is_pair(&s->input[i]) ? key : 0;
    input[i] = own ? f->given->input[i] + (f->owns_keys ? key : query) * row_size(f, i) + at_key : others;
  }
  reference_expr_backward(
      s->pool, &p.env, &root, 1, &g,
      &(reference_gains){.position = at, .operand = to & TILE_OF_OPERANDS ? f->given->operand : NULL, .input = input});
  gradient_sum *own = f->given->position[f->owns_keys] + (f->owns_keys ? key : query) * s->n_axes;
  for (int axis = 0; axis < s->n_axes && to & TILE_OF_TOKENS; axis++) {
    own[axis].value += f->owns_keys ? at[axis].value : -at[axis].value;
    own[axis].size += at[axis].size;
  }
}

static void give_sink(void *context, long double gained) {
  const fixture *f = context;
  gradient_sum at[SPEC_MAX_PLACES] = {{0, 0}}, g = {gained, fabsl(gained)};
  expr_environment env = {.head = f->head, .blocks = f->spec->n_blocks, .operands = f->operands.values};
  reference_expr_backward(f->spec->pool, &env, &f->spec->pairwise->sink, 1, &g,
                          &(reference_gains){.position = at, .operand = f->given->operand});
}

static bool is_encoded(const spec *s, int channel) {
  for (int i = 0; i < s->n_components * s->n_blocks; i++)
    if (s->channel[i] == channel) return true;
  return false;
}

/* Columns of R at the token's place are what unit rows become. A pair's amplitude is with its key. */
static void turn(void *context, bool of_keys, int64_t token, bool back, int width, const long double *row,
                 long double *turned) {
  const fixture *f = context;
  const spec *s = f->spec;
  const double *at = (of_keys ? f->k_positions : f->positions) + token * s->n_axes;
  for (int c = 0; c < width; c++) {
    double unit[SPEC_MAX_HEAD_DIM] = {0};
    long double column[SPEC_MAX_HEAD_DIM];
    unit[c] = 1;
    reference_row(s, at, f->operands.values, f->head, unit, column);
    long double amplitude = of_keys || !is_encoded(s, c) ? 1 : s->amplitude;
    for (int i = 0; i < width; i++) turned[back ? c : i] += column[i] / amplitude * row[back ? i : c];
  }
}

/* R of the displacement, and of the opposite one for R^T. Rows are those of tensors: numbers of float64. */
static void rotate(void *context, int64_t query, int64_t key, bool back, int width, const long double *row,
                   long double *rotated) {
  const fixture *f = context;
  const spec *s = f->spec;
  const double *inputs[SPEC_MAX_INPUTS];
  reference_query of = query_of(f, query, inputs);
  double at[SPEC_MAX_AXES], from[SPEC_MAX_HEAD_DIM];
  for (int axis = 0; axis < s->n_axes; axis++) {
    double key_at = f->k_positions[key * s->n_axes + axis], query_at = f->positions[query * s->n_axes + axis];
    at[axis] = back ? query_at - key_at : key_at - query_at;
  }
  for (int c = 0; c < width; c++) rotated[c] = from[c] = (double)row[c];
  if (!reference_pair_is_plain(s, &of, key)) reference_row(s, at, f->operands.values, f->head, from, rotated);
}

/* ---- both ---- */

typedef struct results {
  long double *of[TILE_TENSOR_COUNT], *lse, *delta;
  long double score; /* the largest that is finite, 1 at least */
  gains given;
} results;

static void exact_results(fixture *f, results *to, gradient_sum **gained) {
  const spec *s = f->spec;
  int width = s->pairwise->value_dim;
  long double *scores = arena_array(f->memory, long double, f->sizes->keys + 1);
  to->of[TILE_OUT] = arena_array(f->memory, long double, f->sizes->queries *width + 1);
  to->score = 1;
  to->given = no_gains(f);
  to->lse = arena_array(f->memory, long double, f->sizes->queries + 1);
  to->delta = arena_array(f->memory, long double, f->sizes->queries + 1);
  for (int i = TILE_G_Q; i <= TILE_G_V; i++)
    gained[i] = arena_array(f->memory, gradient_sum, tokens_of(f, (tile_tensor)i) * width_of(f, (tile_tensor)i) + 1);
  for (int64_t n = 0; n < f->sizes->queries; n++) {
    const double *inputs[SPEC_MAX_INPUTS], *g = f->rows[TILE_G_OUT] + n * width;
    reference_query query = query_of(f, n, inputs);
    long double *out = to->of[TILE_OUT] + n * width;
    reference_attention(s, &query, scores, out);
    for (int64_t key = 0; key < query.keys; key++)
      if (isfinite(scores[key])) to->score = fmaxl(to->score, fabsl(scores[key]));
    to->lse[n] = reference_log_sum(s, &query, scores);
    to->delta[n] = -f->g_lse[n];
    for (int c = 0; c < width; c++) to->delta[n] += out[c] * g[c];
    gradient_sum *input[SPEC_MAX_INPUTS];
    for (int i = 0; i < s->n_inputs; i++)
      input[i] = to->given.input[i] + (s->input[i].of_keys ? 0 : n * row_size(f, i));
    reference_query_gradients all = {.q = gained[TILE_G_Q] + n * s->head_dim,
                                     .k = gained[TILE_G_K],
                                     .v = gained[TILE_G_V],
                                     .position = to->given.position[0] + n * s->n_axes,
                                     .k_positions = to->given.position[1],
                                     .operand = to->given.operand,
                                     .input = input};
    reference_attention_backward(s, &query, g, f->g_lse[n], &all);
  }
}

/* Rows of a tensor as tile_turn makes them. */
static long double *turned_rows(fixture *f, tile_tensor tensor, bool back, const long double *rows) {
  int64_t count = tokens_of(f, tensor) * width_of(f, tensor);
  tile_call call = {.shape = {f->sizes->own, f->sizes->streamed, f->spec->head_dim, f->spec->pairwise->value_dim},
                    .queries = f->sizes->queries,
                    .keys = f->sizes->keys,
                    .turn = turn,
                    .context = f};
  call.in[tensor] = rows;
  call.out[tensor] = arena_array(f->memory, long double, count + 1);
  for (int64_t c = 0; c < count; c++) call.out[tensor][c] = NAN;
  tile_interpret(f->memory, tile_pipeline(f->memory, tile_turn(f->memory, tensor, back)), &call);
  return call.out[tensor];
}

/* Else what rotates stays on the pairs. */
static bool rows_are_turned(arena *a, const spec *s) {
  return s->pairwise->rotates && !s->skip_tokens && !rotations_stay_on_pairs(a, s);
}

/* Whether rows of a tensor are turned before its program or back behind it. */
static bool is_turned(const spec *s, tile_tensor tensor) {
  return s->pairwise->rotates && (s->pairwise->turns_values || tile_width_of(tensor) == TILE_CHANNELS);
}

static const long double *wide(fixture *f, tile_tensor tensor) {
  int64_t count = f->rows[tensor] ? tokens_of(f, tensor) * width_of(f, tensor) : 0;
  long double *values = arena_array(f->memory, long double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = f->rows[tensor][i];
  return values;
}

/* What the program stores, from NaN on; lse where it writes one. apart: rows are turned by programs of their own. */
static results interpreted(fixture *f, const tile_program *p, bool apart, const results *exact) {
  const spec *s = f->spec;
  results got = {.lse = arena_array(f->memory, long double, f->sizes->queries + 1)};
  bool forward = p->op[p->n_ops - 1].tensor == TILE_OUT;
  tile_call call = {
      .shape = {f->sizes->own, f->sizes->streamed, s->head_dim, s->pairwise->value_dim, width_of(f, TILE_Q_COLUMNS)},
      .queries = f->sizes->queries,
      .keys = f->sizes->keys,
      .lse = forward ? got.lse : exact->lse,
      .delta = exact->delta,
      .scale = SCALE,
      .score = score,
      .derivative = derivative,
      .give = give,
      .sink = reference_sink(s, &(reference_query){.head = f->head, .operands = f->operands.values}),
      .give_sink = give_sink,
      .turn = turn,
      .rotate = rotate,
      .context = f};
  got.given = no_gains(f);
  f->given = &got.given;
  f->owns_keys = p->owns_keys;
  for (int i = 0; i < TILE_TENSOR_COUNT; i++) {
    int64_t count = tokens_of(f, (tile_tensor)i) * width_of(f, (tile_tensor)i);
    call.in[i] = wide(f, (tile_tensor)i);
    if (apart && f->rows[i] && is_turned(s, (tile_tensor)i))
      call.in[i] = turned_rows(f, (tile_tensor)i, false, call.in[i]);
    call.out[i] = got.of[i] = arena_array(f->memory, long double, count + 1);
    for (int64_t c = 0; c < count; c++) got.of[i][c] = NAN;
  }
  if (f->widen) {
    call.in[TILE_Q_COLUMNS] = f->columns[0];
    call.in[TILE_K_COLUMNS] = f->columns[1];
  }
  tile_interpret(f->memory, p, &call);
  for (int i = 0; i < p->n_ops; i++) {
    tile_tensor tensor = p->op[i].tensor;
    if (apart && p->op[i].kind == TILE_STORE && is_turned(s, tensor))
      got.of[tensor] = turned_rows(f, tensor, true, got.of[tensor]);
  }
  return got;
}

/* unit: of errors. gained: what they are compared with where it is a gradient; else `exact`. */
static void compare(const fixture *f, const char *name, const char *what, long double unit, const long double *got,
                    const long double *exact, const gradient_sum *gained, int64_t count, int width) {
  for (int64_t i = 0; i < count; i++) {
    long double value = gained ? gained[i].value : exact[i], size = gained ? fmaxl(1, gained[i].size) : 1;
    if (got[i] == value || (isnan(got[i]) && isnan(value)) || fabsl(got[i] - value) <= BOUND * unit * size) continue;
    fail_msg("%s: %s, %d queries, %d keys, tiles of %d and %d, row %d, channel %d: %.20Lg, not %.20Lg", name, what,
             (int)f->sizes->queries, (int)f->sizes->keys, f->sizes->own, f->sizes->streamed, (int)(i / width),
             (int)(i % width), got[i], value);
  }
}

static void compare_sums(const fixture *f, const char *name, const char *what, long double unit,
                         const gradient_sum *got, const gradient_sum *exact, int64_t count, int width) {
  long double *values = arena_array(f->memory, long double, count + 1);
  for (int64_t i = 0; i < count; i++) values[i] = got[i].value;
  compare(f, name, what, unit, values, NULL, exact, count, width);
}

/* What an op of the program gives, and zeros of what it does not. */
static void compare_given(const fixture *f, const char *name, const tile_program *p, const gains *got,
                          const results *exact) {
  const spec *s = f->spec;
  gains none = no_gains(f);
  unsigned to = 0;
  for (int i = 0; i < p->n_ops; i++) to |= p->op[i].kind == TILE_GIVE ? p->op[i].to : 0;
  for (int i = 0; i < s->n_operands; i++)
    compare_sums(f, name, s->operand[i].name, exact->score, got->operand[i],
                 (to & TILE_OF_OPERANDS ? &exact->given : &none)->operand[i], spec_operand_elements(&s->operand[i]), 1);
  for (int i = 0; i < s->n_inputs; i++) {
    bool gives = to & TILE_OF_TOKENS && s->input[i].of_keys == p->owns_keys;
    compare_sums(f, name, s->input[i].name, exact->score, got->input[i], (gives ? &exact->given : &none)->input[i],
                 input_count(f, i), (int)row_size(f, i));
  }
  for (int of_keys = 0; of_keys < 2 && s->n_axes; of_keys++) {
    bool gives = to & TILE_OF_TOKENS && of_keys == p->owns_keys;
    compare_sums(f, name, of_keys ? "k_positions" : "positions", exact->score, got->position[of_keys],
                 (gives ? &exact->given : &none)->position[of_keys],
                 (of_keys ? f->sizes->keys : f->sizes->queries) * s->n_axes, s->n_axes);
  }
}

static void compare_program(fixture *f, const char *name, const tile_program *p, bool apart, const results *exact,
                            gradient_sum *const *gained) {
  results got = interpreted(f, p, apart, exact);
  for (int i = 0; i < p->n_ops; i++) {
    if (p->op[i].kind != TILE_STORE) continue;
    tile_tensor tensor = p->op[i].tensor;
    int width = width_of(f, tensor);
    compare(f, name, tile_tensor_name(tensor), exact->score, got.of[tensor], exact->of[tensor], gained[tensor],
            tokens_of(f, tensor) * width, width);
    if (tensor == TILE_OUT) compare(f, name, "lse", exact->score, got.lse, exact->lse, NULL, f->sizes->queries, 1);
  }
  compare_given(f, name, p, &got.given, exact);
}

static void compare_description(const char *name, const spec *s, const plan_widen *widen) {
  for (size_t i = 0; i < sizeof all_sizes / sizeof *all_sizes; i++)
    for (int head = 0; head < s->heads && head < MOST_HEADS; head++) {
      SCOPED fixture f = {
          .memory = arena_create(), .spec = s, .sizes = &all_sizes[i], .random = 5 + i, .head = head, .widen = widen};
      results exact = {.lse = NULL};
      gradient_sum *gained[TILE_TENSOR_COUNT] = {NULL};
      const tile_program *forward = tile_forward(f.memory, widen != NULL);
      bool turns = rows_are_turned(f.memory, s);
      if (s->pairwise->sink) forward = tile_sunk(f.memory, forward);
      if (turns) forward = tile_turned(f.memory, forward, s->pairwise->turns_values);
      else if (s->pairwise->rotates) forward = tile_rotated(f.memory, forward);
      fill_call(&f);
      if (widen) make_columns(&f);
      exact_results(&f, &exact, gained);
      /* Gradients of operands and coordinates of polynomials and rotations are made elsewhere. */
      bool gives = !s->polynomial && !s->pairwise->rotates;
      unsigned tokens = gives ? TILE_OF_TOKENS : 0, all = gives ? TILE_OF_TOKENS | TILE_OF_OPERANDS : 0;
      const tile_program *programs[] = {forward,
                                        tile_reverse(f.memory, forward, TILE_OF_QUERIES | all),
                                        tile_reverse(f.memory, forward, TILE_OF_KEYS | TILE_OF_VALUES | tokens),
                                        tile_reverse(f.memory, forward, TILE_OF_QUERIES),
                                        tile_reverse(f.memory, forward, TILE_OF_KEYS),
                                        tile_reverse(f.memory, forward, TILE_OF_VALUES)};
      /* Gradients of keys and of values apart are the same ops: one size and head of each description. */
      int n_programs = i || head ? 3 : (int)(sizeof programs / sizeof *programs);
      for (int p = 0; p < n_programs; p++) {
        compare_program(&f, name, tile_in_turn(f.memory, programs[p]), false, &exact, gained);
        compare_program(&f, name, tile_pipeline(f.memory, programs[p]), false, &exact, gained);
        if (!turns) continue;
        const tile_program *apart = tile_apart(f.memory, programs[p]);
        compare_program(&f, name, tile_pipeline(f.memory, apart), true, &exact, gained);
      }
    }
  described++;
}

/* ---- descriptions ---- */

static void compare_defined(const char *name, const char *file, int n, const loader_define *defines) {
  SCOPED arena *a = arena_create();
  const spec *s = loader_load(a, file, DSL_DIR, n, defines);
  assert_non_null(s);
  assert_non_null(s->pairwise);
  compare_description(name, s, NULL);
  if (s->polynomial) {
    const plan_widen *widen = plan_widen_build(a, s);
    assert_non_null(widen);
    assert_true(widen->n_columns > 0);
    compare_description(arena_printf(a, "%s, columns", name), s, widen);
  }
}

static void stock(void **state) {
  const variant *v = *state;
  static const loader_define skip = {"skip_tokens", "2"}, fused = {"role", "pairwise"};
  loader_define defines[VARIANT_MAX_DEFINES + 1];
  SCOPED arena *a = arena_create();
  const spec *s = loader_load(a, v->file, DSL_DIR, v->n_defines, v->define);
  memcpy(defines, v->define, sizeof v->define);
  assert_non_null(s);
  if (s->pairwise) {
    compare_defined(v->name, v->file, v->n_defines, defines);
    defines[v->n_defines] = skip;
    compare_defined(v->name, v->file, v->n_defines + 1, defines);
  } else if (s->polynomial) {
    defines[v->n_defines] = fused;
    compare_defined(v->name, v->file, v->n_defines + 1, defines);
  }
}

static const struct {
  const char *name, *kinds; /* of an option `kind`, separated by spaces; NULL: it has none */
} local[] = {
    {"scores", "softcap causal prefix window sloped document learned table squared nothing nested guarded tempered "
               "sunk sunk_turned"},
    {"score_inputs", "forgetting padding documents tempered mixed padded leaning pairs"},
    {"values", "planes vectors learned"},
    {"rows_turned", NULL},
    {"rope_pairwise", NULL},
    {"slopes", NULL},
    {"logarithm", NULL},
    {"steep", NULL},
};

TEST(of_scores) {
  for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
    SCOPED arena *a = arena_create();
    const char *file = arena_printf(a, ATTENTION_DIR "/%s.lua", local[i].name);
    if (!local[i].kinds) compare_defined(local[i].name, file, 0, NULL);
    char *kinds = arena_strdup(a, local[i].kinds ? local[i].kinds : "");
    for (char *kind = strtok(kinds, " "); kind; kind = strtok(NULL, " ")) {
      loader_define define = {"kind", kind};
      compare_defined(arena_printf(a, "%s %s", local[i].name, kind), file, 1, &define);
    }
  }
}

/* ---- rows that are not finite ---- */

/* A key that queries do not see leaves no trace in what they are and gain, whatever its rows hold. */
TEST(unseen_rows) {
  static const sizes causal = {9, 9, true, 4, 5};
  static const double bad[] = {NAN, INFINITY, -INFINITY};
  SCOPED arena *a = arena_create();
  const spec *s = loader_load(a, SPECS_DIR "/attention.lua", DSL_DIR, 0, NULL);
  assert_non_null(s);
  for (int i = 0; i < 3; i++) {
    fixture f = {.memory = a, .spec = s, .sizes = &causal, .random = 3};
    results exact = {.lse = NULL};
    gradient_sum *gained[TILE_TENSOR_COUNT] = {NULL};
    fill_call(&f);
    exact_results(&f, &exact, gained);
    /* The last key, which the last query alone sees. */
    f.rows[TILE_K][8 * s->head_dim + 3] = f.rows[TILE_V][8 * s->pairwise->value_dim + 5] = bad[i];
    results out = interpreted(&f, tile_pipeline(a, tile_forward(a, false)), false, &exact),
            dq = interpreted(&f, tile_pipeline(a, tile_reverse(a, tile_forward(a, false), TILE_OF_QUERIES)), false,
                             &exact);
    compare(&f, "unseen", "out", 1, out.of[TILE_OUT], exact.of[TILE_OUT], NULL, 8 * s->pairwise->value_dim, 1);
    compare(&f, "unseen", "dq", 1, dq.of[TILE_G_Q], NULL, gained[TILE_G_Q], 8 * s->head_dim, 1);
    const double *inputs[SPEC_MAX_INPUTS];
    long double scores[9], seen[SPEC_MAX_HEAD_DIM];
    reference_query last = query_of(&f, 8, inputs);
    reference_attention(s, &last, scores, seen);
    for (int c = 0; c < s->pairwise->value_dim; c++)
      assert_int_equal(!isfinite(out.of[TILE_OUT][8 * s->pairwise->value_dim + c]), !isfinite(seen[c]));
  }
}

int main(void) {
  SCOPED arena *a = arena_create();
  variant *variants;
  int count = variants_read(a, SPECS_DIR, VARIANTS, NULL, &variants);
  for (int i = 0; i < count; i++) list_row(variants[i].name, stock, &variants[i]);
  int failed = run_listed();
  print_message("%d descriptions\n", described);
  if (described < LEAST_DESCRIPTIONS) {
    print_error("%d descriptions were compared\n", described);
    failed++;
  }
  return failed;
}
