/* gpu/attention_backward: the walks of both entries; see gpu/attention_backward.h.
 *
 * As on processors (cpu/attention/gradient), with D_i = <g_i, o_i> - g_lse_i:
 *
 *     P = 2^(S - lse),  V' += P^T g,  S' = P (g V^T - D),  K' += S'^T Q,  Q' += S' K
 *
 * A pair that is not seen has P = 0, whatever its score and its numbers are, and S' = 0. Rows of queries lie in shared
 * memory times the scale and log2(e), as forward has them, so that both ways make the same scores.
 */
#include "gpu/attention_backward.h"

#include "base/diag.h"
#include "base/number.h"
#include "gpu/index.h"

#include "kernel/launch.h"

enum { CHANNELS = ATTEND_QUAD * ATTEND_LANES };

static const double LN_2 = 0.69314718055994530942;

static ir_value zero(const attend *t) { return ir_float(t->b, t->b->f32, 0); }

static ir_value is_wanted(attend_gradient *g, int rows) {
  return ir_compare_int(g->t.b, "ne", g->parameter[rows + PEGEN_PTX_ROWS_ADDRESS], i64(g->t.b, 0));
}

static attend_rows rows_of(attend_gradient *g, int parameter, ir_value head, int width) {
  return attend_rows_of(&g->t, (int)(g->parameter - g->t.parameter) + parameter, head, width);
}

/* ---- what is known of queries ---- */

/* Those past the last see no key. */
static ir_value limit_of(attend_gradient *g, ir_value token) {
  ir *b = g->t.b;
  return ir_select(b, less(b, token, g->t.tokens), attend_limit_of(&g->t, token), i32(b, 0));
}

/* <g_i, o_i> of the thread's channels: outputs lie where q will, g_out in its place. */
static ir_value outputs_gain(attend_gradient *g, int row) {
  ir *b = g->t.b;
  MlirType four = ir_vector(b, ATTEND_QUAD, b->f32);
  ir_value at[2], sum = zero(&g->t), channel = scaled(b, g->t.lane, ATTEND_QUAD);
  for (int i = 0; i < 2; i++) {
    at[i] = attend_row_at(&g->t, g->own[i].memory, attend_own_row(&g->t, row), g->own[i].pitch);
    at[i] = ir_offset(b, at[i], wide(b, scaled(b, channel, 4)));
  }
  for (int quad = 0; quad < g->shape.quads[ATTEND_OF_VALUES]; quad++) {
    ir_value x[2], own = zero(&g->t);
    for (int i = 0; i < 2; i++) x[i] = ir_load(b, four, ir_offset_const(b, at[i], 4LL * quad * CHANNELS), 16);
    for (int c = 0; c < ATTEND_QUAD; c++) {
      ir_value out = ir_extract(b, x[0], c), gained = ir_extract(b, x[1], c);
      own = ir_fma(b, out, gained, own);
    }
    if ((quad + 1) * CHANNELS > g->t.p->value_dim) {
      ir_value inside = less(b, add(b, channel, i32(b, (int64_t)quad * CHANNELS)), i32(b, g->t.p->value_dim));
      own = ir_select(b, inside, own, zero(&g->t));
    }
    sum = add(b, sum, own);
  }
  return sum;
}

/* D of the thread's queries, which all of a team have; the second entry reads it, too. */
static void make_less(attend_gradient *g, attend_query_facts *facts) {
  attend *t = &g->t;
  ir *b = t->b;
  for (int i = 0; i < t->shape.rows; i++) {
    ir_value part = outputs_gain(g, i);
    ir_store(b, part, attend_own_word(t, attend_own_row(t, i)), 4, false);
  }
  ir_wait(b, IR_BARRIER_WARP);
  for (int i = 0; i < t->shape.rows; i++) {
    ir_value token = add(b, t->first, attend_own_row(t, i)), sum = attend_sum_words(t, attend_own_row(t, i));
    facts[i].less = sub(b, sum, attend_load_g_lse(t, g->parameter, clamped(b, token, t->tokens)));
    ir_value writes = both(b, ir_compare_int(b, "eq", t->lane, i32(b, 0)), less(b, token, t->tokens));
    ir_branch one = ir_if(b, writes);
    ir_store(b, facts[i].less, attend_delta_at(t, g->parameter, token), 4, false);
    ir_end_if(b, one);
  }
}

/* ---- rows into shared memory ---- */

static void copy_own(attend_gradient *g, int rows, const attend_rows *from, ir_value end, ir_value factor) {
  attend_copy(&g->t, from, g->t.first, end, g->t.shape.queries, g->own[rows].memory, g->own[rows].pitch, factor, false);
}

/* What pairs of a tile are made of: two kinds of rows that pass, of one head. */
typedef struct passing_rows {
  attend_rows rows[2];
  ir_value end, factor[2];
  bool watched[2];
} passing_rows;

static void copy_passing(attend_gradient *g, const passing_rows *from, int rows, ir_value first) {
  attend_copy(&g->t, &from->rows[rows], first, from->end, g->t.shape.keys, g->passing[rows].memory,
              g->passing[rows].pitch, from->factor[rows], from->watched[rows]);
}

/* In one room rows of the other kind take their place. */
static void take_turns(attend_gradient *g, const passing_rows *from, int rows, ir_value first) {
  if (!g->shape.is_shared) return;
  ir_wait(g->t.b, IR_BARRIER_BLOCK);
  copy_passing(g, from, rows, first);
  ir_wait(g->t.b, IR_BARRIER_BLOCK);
  attend_passing_turn(g, rows, from->watched[rows]);
}

/* Once places are there, too. */
static void turn_passing(attend_gradient *g, const passing_rows *from) {
  attend_passing_turn(g, ATTEND_OF_KEYS, from->watched[ATTEND_OF_KEYS]);
  if (!g->shape.is_shared) attend_passing_turn(g, ATTEND_OF_VALUES, from->watched[ATTEND_OF_VALUES]);
}

static void begin_passing(attend_gradient *g, const passing_rows *from, ir_value first) {
  copy_passing(g, from, ATTEND_OF_KEYS, first);
  if (!g->shape.is_shared) copy_passing(g, from, ATTEND_OF_VALUES, first);
}

static void clear_sums(attend_gradient *g, int count, ir_value *sums) {
  for (int i = 0; i < count; i++) sums[i] = ir_float(g->t.b, ir_vector(g->t.b, ATTEND_QUAD, g->t.b->f32), 0);
}

/* Rows [first ...) of the block's tile below `end`, times a factor. */
static void store_sums(attend_gradient *g, int parameter, ir_value head, ir_value end, int rows, double factor,
                       ir_value scale, const ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_branch wanted = ir_if(b, is_wanted(g, parameter));
  attend_rows to = rows_of(g, parameter, head, rows == ATTEND_OF_KEYS ? t->p->head_dim : t->p->value_dim);
  for (int i = 0; i < t->shape.rows; i++) {
    ir_value token = add(b, t->first, attend_own_row(t, i));
    ir_branch given = ir_if(b, less(b, token, end));
    for (int quad = 0; quad < g->shape.quads[rows]; quad++) {
      ir_value x = sums[i * g->shape.quads[rows] + quad], by = ir_float(b, b->f32, factor);
      if (scale.ptr) by = mul(b, scale, by);
      attend_store_quad(t, &to, token, quad, mul(b, x, ir_broadcast(b, ir_type(x), by)));
    }
    ir_end_if(b, given);
  }
  ir_end_if(b, wanted);
}

/* What rows of q or k that stay gain, at the parameter, of those that pass. */
static void add_row_sums(attend_gradient *g, int parameter, ir_value first, ir_value *sums) {
  attend_add_sums(g, is_wanted(g, parameter), ATTEND_OF_KEYS, sums);
  attend_turned_add(g, is_wanted(g, parameter), first);
}

/* ---- places ---- */

static void copy_places(attend_gradient *g, bool of_queries, ir_value first, int count, const ir_value *origin) {
  attend *t = &g->t;
  if (!t->places.ptr) return;
  attend_copy_places(t, of_queries ? PEGEN_PTX_ATTENTION_POSITIONS : PEGEN_PTX_ATTENTION_KEY_POSITIONS, first, count,
                     of_queries ? t->query_places : t->places, origin);
}

/* In the block's own tile. */
static void find_origin(attend_gradient *g, ir_value *origin) {
  attend *t = &g->t;
  if (!t->places.ptr) return;
  attend_find_origin(t, g->of_keys ? PEGEN_PTX_ATTENTION_KEY_POSITIONS : PEGEN_PTX_ATTENTION_POSITIONS, t->first,
                     t->shape.queries, origin);
}

/* What pairs share, where a head is known. */
static void begin_pairs(attend_gradient *g) {
  if (!attend_has_pairs(g->t.p)) return;
  attend_pair_begin(&g->t);
  attend_products_begin(g);
}

/* ---- columns ---- */

static void lay_query_columns(attend_gradient *g, attend_matrix to, ir_value first, int count) {
  if (!attend_has_columns(g->t.p)) return;
  attend_column_rows rows = {to.memory, to.pitch, first, count};
  attend_query_columns(&g->t, &rows, g->scratch, attend_scale(&g->t));
}

static void lay_key_columns(attend_gradient *g, attend_matrix to, ir_value first, int count) {
  if (attend_has_columns(g->t.p)) attend_key_columns(&g->t, &(attend_column_rows){to.memory, to.pitch, first, count});
}

/* Log-sum-exps have what columns leave out of the scores of query `query` of the tile. */
static ir_value without_constant(attend_gradient *g, ir_value lse, ir_value query) {
  ir *b = g->t.b;
  if (!attend_has_constant(g->t.p)) return lse;
  return sub(b, lse, ir_load(b, b->f32, attend_constant_at(&g->t, query), 4));
}

/* ---- tiles of queries ---- */

static int n_query_sums(const attend_gradient *g) { return g->t.shape.rows * g->shape.quads[ATTEND_OF_KEYS]; }

static void emit_key_tile(attend_gradient *g, const passing_rows *from, const attend_query_facts *facts, ir_value first,
                          const ir_value *origin, ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  attend_pair_tile p = {.first = first, .row = facts};
  begin_passing(g, from, first);
  lay_key_columns(g, g->passing[ATTEND_OF_KEYS], first, t->shape.keys);
  copy_places(g, false, first, t->shape.keys, origin);
  attend_lay_numbers_of(t, true, first, t->shape.keys);
  ir_wait(b, IR_BARRIER_BLOCK);
  turn_passing(g, from);
  attend_make_weights(g, &p);
  take_turns(g, from, ATTEND_OF_VALUES, first);
  attend_make_gains(g, &p);
  take_turns(g, from, ATTEND_OF_KEYS, first);
  attend_lay_numbers(g, p.gained);
  attend_gives_add(g, first);
  attend_lay_product_gains(g, first);
  attend_give give = attend_give_of(g, first);
  attend_give_torques(&give);
  add_row_sums(g, PEGEN_PTX_ATTENTION_G_Q, first, sums);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the rows */
}

/* Keys that some query of the tile sees, where anything comes of them: [0, end). */
static ir_value end_of_keys(attend_gradient *g) {
  ir *b = g->t.b;
  ir_value of_rows = is_wanted(g, PEGEN_PTX_ATTENTION_G_Q),
           gains = ir_op2(b, "arith.ori", of_rows, attend_gives_wanted(g));
  return ir_select(b, gains, attend_end_of_keys(&g->t), i32(b, 0));
}

/* q and g_out of the block's queries and what is known of them. */
static void begin_queries(attend_gradient *g, attend_query_facts *facts, const ir_value *origin) {
  attend *t = &g->t;
  ir *b = t->b;
  attend_rows q = attend_rows_of(t, PEGEN_PTX_ATTENTION_Q, t->head, t->p->head_dim),
              out = attend_rows_of(t, PEGEN_PTX_ATTENTION_OUT, t->head, t->p->value_dim),
              g_out = rows_of(g, PEGEN_PTX_ATTENTION_G_OUT, t->head, t->p->value_dim);
  attend_clear_spoilt(&g->t);
  copy_own(g, ATTEND_OF_KEYS, &out, t->tokens, (ir_value){NULL});
  copy_own(g, ATTEND_OF_VALUES, &g_out, t->tokens, (ir_value){NULL});
  ir_wait(b, IR_BARRIER_BLOCK);
  make_less(g, facts);
  for (int i = 0; i < t->shape.rows; i++) {
    ir_value token = add(b, t->first, attend_own_row(t, i));
    facts[i].limit = limit_of(g, token);
    facts[i].lse = attend_load_lse(t, clamped(b, token, t->tokens));
  }
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the outputs */
  lay_query_columns(g, g->own[ATTEND_OF_KEYS], t->first, t->shape.queries);
  for (int i = 0; i < t->shape.rows; i++) facts[i].lse = without_constant(g, facts[i].lse, attend_own_row(t, i));
  copy_own(g, ATTEND_OF_KEYS, &q, t->tokens, attend_scale(&g->t));
  copy_places(g, true, t->first, t->shape.queries, origin);
  attend_lay_numbers_of(t, false, t->first, t->shape.queries);
  attend_own_turn(g);
}

static void emit_query_tile(attend_gradient *g) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value of_keys = ir_op2(b, "arith.divui", t->head, attend_short_parameter(t, PEGEN_PTX_ATTENTION_GROUP));
  passing_rows from = {.rows = {attend_rows_of(t, PEGEN_PTX_ATTENTION_K, of_keys, t->p->head_dim),
                                attend_rows_of(t, PEGEN_PTX_ATTENTION_V, of_keys, t->p->value_dim)},
                       .end = t->keys,
                       .watched = {true, false}};
  attend_query_facts facts[ATTEND_MOST_ROWS];
  ir_value origin[SPEC_MAX_AXES];
  find_origin(g, origin);
  ir_value sums[IR_MAX_RESULTS], now[IR_MAX_RESULTS];
  int count = n_query_sums(g);
  clear_sums(g, count, sums);
  begin_queries(g, facts, origin);
  begin_pairs(g);
  attend_gives_begin(g);
  attend_gives_clear(g);
  attend_turned_clear(g);
  ir_value tiles = quotient_up(b, end_of_keys(g), t->shape.keys);
  ir_loop loop = ir_for_with(b, i64(b, 0), wide(b, tiles), count, sums, now);
  emit_key_tile(g, &from, facts, scaled(b, narrow(b, loop.index), t->shape.keys), origin, now);
  ir_end_for_with(b, loop, count, now, sums);
  attend_turned_merge(g, sums);
  attend_sums_turn_back(g, ATTEND_OF_KEYS, sums);
  store_sums(g, PEGEN_PTX_ATTENTION_G_Q, t->head, t->tokens, ATTEND_OF_KEYS, LN_2, attend_scale(&g->t), sums);
  attend_gives_end(g);
  ir_wait(b, IR_BARRIER_BLOCK); /* memory is free for the next */
}

static void emit_queries(attend_gradient *g) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value each = g->parameter[PEGEN_PTX_ATTENTION_EACH], items = g->parameter[PEGEN_PTX_ATTENTION_ITEMS];
  attend_gives_clear_block(g);
  ir_value begin = mul(b, wide(b, t->block), each), end = smaller(b, add(b, begin, each), items);
  ir_loop loop = ir_for(b, begin, end);
  two_float *remembered = emit_thread_remember(&t->exprs);
  /* The last tiles first: with a causal mask they have the most to do. */
  ir_value heads = attend_short_parameter(t, PEGEN_PTX_ATTENTION_HEADS);
  t->head = t->exprs.head = g->owner = attend_set_tile(t, narrow(b, loop.index), t->tokens, heads, true);
  emit_query_tile(g);
  emit_thread_forget(&t->exprs, remembered);
  ir_end_for(b, loop);
}

/* ---- tiles of keys ---- */

static ir_value number_at(attend_gradient *g, int kind, ir_value column) {
  ir *b = g->t.b;
  return ir_offset(b, g->numbers, wide(b, scaled(b, add(b, column, i32(b, (int64_t)kind * g->t.shape.keys)), 4)));
}

/* Those of the queries that pass, by the first threads. */
static void lay_query_numbers(attend_gradient *g, ir_value first) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_branch some = ir_if(b, below(b, t->thread, i32(b, t->shape.keys)));
  ir_value token = clamped(b, add(b, first, t->thread), t->tokens);
  ir_store(b, attend_load_lse(t, token), number_at(g, 0, t->thread), 4, false);
  ir_store(b, ir_load(b, b->f32, attend_delta_at(t, g->parameter, token), 4), number_at(g, 1, t->thread), 4, false);
  ir_end_if(b, some);
}

static void load_query_numbers(attend_gradient *g, ir_value first, attend_query_facts *facts) {
  attend *t = &g->t;
  ir *b = t->b;
  for (int j = 0; j < t->shape.columns; j++) {
    ir_value column = attend_own_column(t, j);
    facts[j].limit = limit_of(g, add(b, first, column));
    facts[j].lse = without_constant(g, ir_load(b, b->f32, number_at(g, 0, column), 4), column);
    facts[j].less = ir_load(b, b->f32, number_at(g, 1, column), 4);
  }
}

static void emit_passing_queries(attend_gradient *g, const passing_rows *from, ir_value first, const ir_value *origin,
                                 ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  attend_query_facts facts[ATTEND_MOST_ROWS];
  attend_pair_tile p = {.first = first, .column = facts};
  begin_passing(g, from, first);
  lay_query_columns(g, g->passing[ATTEND_OF_KEYS], first, t->shape.keys);
  lay_key_columns(g, g->own[ATTEND_OF_KEYS], t->first, t->shape.queries); /* from the queries' origin */
  lay_query_numbers(g, first);
  copy_places(g, true, first, t->shape.keys, origin);
  attend_lay_numbers_of(t, false, first, t->shape.keys);
  if (g->shape.moves) copy_places(g, false, t->first, t->shape.queries, origin); /* columns were made there */
  ir_wait(b, IR_BARRIER_BLOCK);
  turn_passing(g, from);
  load_query_numbers(g, first, facts);
  attend_make_weights(g, &p);
  take_turns(g, from, ATTEND_OF_VALUES, first);
  attend_make_gains(g, &p);
  attend_lay_numbers(g, p.weight);
  attend_add_sums(g, is_wanted(g, PEGEN_PTX_ATTENTION_G_V), ATTEND_OF_VALUES, sums + n_query_sums(g));
  take_turns(g, from, ATTEND_OF_KEYS, first);
  attend_lay_numbers(g, p.gained);
  attend_gives_add(g, first);
  attend_lay_product_gains(g, first);
  attend_give give = attend_give_of(g, first);
  attend_give_torques(&give);
  add_row_sums(g, PEGEN_PTX_ATTENTION_G_K, first, sums);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the rows */
}

/* The queries of one head: the first tile that sees the block's first key, and all after it. */
static void emit_head(attend_gradient *g, const ir_value *origin, int count, ir_value *sums) {
  attend *t = &g->t;
  ir *b = t->b;
  passing_rows from = {.rows = {attend_rows_of(t, PEGEN_PTX_ATTENTION_Q, t->head, t->p->head_dim),
                                rows_of(g, PEGEN_PTX_ATTENTION_G_OUT, t->head, t->p->value_dim)},
                       .end = t->tokens,
                       .factor = {attend_scale(&g->t), {NULL}},
                       .watched = {true, true}};
  ir_value now[IR_MAX_RESULTS], none = i32(b, 0);
  attend_lay_numbers_of(t, true, t->first, t->shape.queries);
  begin_pairs(g);
  if (t->p->sums_inputs) { /* keys have a share of each head of q */
    g->owner = t->head;
    attend_gives_clear(g);
  }
  attend_gives_begin(g);
  ir_value causal = ir_compare_int(b, "ne", t->parameter[PEGEN_PTX_ATTENTION_CAUSAL], i64(b, 0));
  ir_value seeing = larger(b, add(b, sub(b, t->first, t->keys), t->tokens), none);
  ir_value begin = quotient(b, ir_select(b, causal, seeing, none), t->shape.keys),
           end = quotient_up(b, t->tokens, t->shape.keys);
  ir_loop loop = ir_for_with(b, wide(b, begin), wide(b, end), count, sums, now);
  emit_passing_queries(g, &from, scaled(b, narrow(b, loop.index), t->shape.keys), origin, now);
  ir_end_for_with(b, loop, count, now, sums);
}

/* Rows of the block's keys; where rotations differ by head, and rows are turned, they are made anew for each head that
 * shares them. */
typedef struct key_rows {
  attend_rows k, v;
  bool are_of_heads;
} key_rows;

static bool rotates_by_head(const attention_plan *p) {
  for (int i = 0; i < p->n_entries; i++)
    if (p->entry[i]->depends & DEPENDS_HEAD) return true;
  return false;
}

static void copy_keys(attend_gradient *g, const key_rows *own) {
  copy_own(g, ATTEND_OF_KEYS, &own->k, g->t.keys, (ir_value){NULL});
  copy_own(g, ATTEND_OF_VALUES, &own->v, g->t.keys, (ir_value){NULL});
}

static void end_keys(attend_gradient *g, ir_value *sums) {
  attend_sums_turn_back(g, ATTEND_OF_KEYS, sums);
  attend_sums_turn_back(g, ATTEND_OF_VALUES, sums + n_query_sums(g));
}

static void emit_turned_head(attend_gradient *g, const key_rows *own, const ir_value *origin, int count,
                             ir_value *sums) {
  ir_value of_head[IR_MAX_RESULTS];
  clear_sums(g, count, of_head);
  copy_keys(g, own);
  attend_own_turn(g);
  emit_head(g, origin, count, of_head);
  end_keys(g, of_head);
  for (int i = 0; i < count; i++) sums[i] = add(g->t.b, sums[i], of_head[i]);
}

static void emit_keys(attend_gradient *g) {
  attend *t = &g->t;
  ir *b = t->b;
  ir_value group = attend_short_parameter(t, PEGEN_PTX_ATTENTION_GROUP),
           heads_of_keys = ir_op2(b, "arith.divui", attend_short_parameter(t, PEGEN_PTX_ATTENTION_HEADS), group);
  /* The first tiles first: with a causal mask they have the most to do. */
  ir_value shared = g->owner = attend_set_tile(t, t->block, t->keys, heads_of_keys, false);
  attend_rows k = attend_rows_of(t, PEGEN_PTX_ATTENTION_K, shared, t->p->head_dim),
              v = attend_rows_of(t, PEGEN_PTX_ATTENTION_V, shared, t->p->value_dim);
  int of_keys = n_query_sums(g), count = of_keys + t->shape.rows * g->shape.quads[ATTEND_OF_VALUES];
  ir_value sums[IR_MAX_RESULTS], now[IR_MAX_RESULTS];
  ir_value origin[SPEC_MAX_AXES];
  find_origin(g, origin);
  clear_sums(g, count, sums);
  if (!t->p->sums_inputs) attend_gives_clear(g);
  attend_turned_clear(g);
  attend_clear_spoilt(&g->t);
  key_rows own = {k, v, t->turns_rows && rotates_by_head(t->p)};
  if (!own.are_of_heads) copy_keys(g, &own);
  if (!g->shape.moves) copy_places(g, false, t->first, t->shape.queries, origin);
  if (!own.are_of_heads) attend_own_turn(g);
  ir_wait(b, IR_BARRIER_BLOCK); /* before a row that passes is watched */
  ir_loop heads = ir_for_with(b, i64(b, 0), wide(b, group), count, sums, now);
  two_float *remembered = emit_thread_remember(&t->exprs);
  t->head = t->exprs.head = add(b, mul(b, shared, group), narrow(b, heads.index));
  if (own.are_of_heads) emit_turned_head(g, &own, origin, count, now);
  else emit_head(g, origin, count, now);
  emit_thread_forget(&t->exprs, remembered);
  ir_end_for_with(b, heads, count, now, sums);
  attend_turned_merge(g, sums);
  if (!own.are_of_heads) end_keys(g, sums);
  store_sums(g, PEGEN_PTX_ATTENTION_G_K, shared, t->keys, ATTEND_OF_KEYS, LN_2, (ir_value){NULL}, sums);
  store_sums(g, PEGEN_PTX_ATTENTION_G_V, shared, t->keys, ATTEND_OF_VALUES, 1, (ir_value){NULL}, sums + of_keys);
}

/* ---- an entry ---- */

static ir_value declare(attend_gradient *g, const char *what, int64_t bytes) {
  const char *name = arena_printf(g->t.memory, "%s_%s", g->t.entry->name, what);
  ir_shared(g->t.b, name, bytes);
  return ir_shared_address(g->t.b, name);
}

static void declare_memory(attend_gradient *g, bool of_keys) {
  attend *t = &g->t;
  const attend_shape *s = &t->shape;
  int64_t place = attend_place_bytes(t->p);
  int64_t own = 4LL * s->queries * s->query_pitch, passing = 4LL * s->keys * s->key_pitch;
  for (int i = 0; i < 2; i++) {
    g->own[i] = (attend_matrix){declare(g, i ? "own_values" : "own", own), s->query_pitch};
    g->passing[i] = g->passing[0];
    if (i && g->shape.is_shared) continue;
    g->passing[i] = (attend_matrix){declare(g, i ? "passing_values" : "passing", passing), s->key_pitch};
  }
  t->scores = declare(g, "scores", 4LL * s->queries * s->score_pitch);
  t->spoilt = declare(g, "spoilt", 4);
  if (of_keys) g->numbers = declare(g, "numbers", 8LL * s->keys);
  if (attend_gives_bytes(&g->shape, t->p)) g->given = declare(g, "given", attend_gives_bytes(&g->shape, t->p));
  t->queries = (of_keys ? g->passing : g->own)[ATTEND_OF_KEYS].memory;
  t->rows = (of_keys ? g->own : g->passing)[ATTEND_OF_KEYS].memory;
  if (t->p->matrix) {
    g->turned = (attend_matrix){declare(g, "turned", 4LL * s->queries * s->query_pitch), s->query_pitch};
    g->turned_words = declare(g, "turned_words", attend_turned_word_bytes(t->p));
  }
  if (attend_has_columns(t->p)) {
    int64_t origin = 8LL * t->p->spec->n_axes;
    t->origin = declare(g, "origin", origin);
    t->constants = declare(g, "constants", attend_columns_bytes(t->p, s) - origin);
  }
  if (s->scratch) g->scratch = declare(g, "scratch", s->scratch);
  if (t->p->score) g->products = declare(g, "products", 4LL * s->queries * s->score_pitch);
  if (g->shape.moves || (g->shape.weighs && !of_keys)) {
    t->query_places = g->scratch;
    t->places = ir_offset_const(t->b, g->scratch, place * (of_keys ? s->keys : s->queries));
  }
  attend_declare_numbers(t, of_keys ? s->keys : s->queries, of_keys ? s->queries : s->keys);
  if (!attend_has_places(t->p)) return;
  t->query_places = declare(g, "query_places", place * (of_keys ? s->keys : s->queries));
  t->places = declare(g, "places", place * (of_keys ? s->queries : s->keys));
}

void gpu_emit_attention_gradient(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                                 bool host) {
  const attend_design *design = program->plan;
  const attention_plan *p = design->gradient;
  bool of_keys = entry->kind == GPU_ATTENTION_KEYS;
  attend_gradient g = {.shape = attend_gradient_shape_of(p), .of_keys = of_keys};
  g.t = (attend){.b = b, .memory = a, .p = p, .entry = entry, .shape = g.shape.tile};
  g.t.turns_rows = p != design->p;
  attend *t = &g.t;
  int first = attend_parameters(p->spec);
  gpu_function f =
      gpu_open_function(b, a, entry->name, first + PEGEN_PTX_ATTENTION_GRADIENT_COUNT, entry->blocks, host);
  t->parameter = f.parameter;
  g.parameter = f.parameter + first;
  t->block = f.block;
  t->thread = f.thread;
  declare_memory(&g, of_keys);
  if (g.shape.moves && !of_keys) t->kept = g.parameter[PEGEN_PTX_ATTENTION_KEPT];
  t->tokens = attend_short_parameter(t, PEGEN_PTX_ATTENTION_TOKENS);
  t->keys = attend_short_parameter(t, PEGEN_PTX_ATTENTION_KEYS);
  t->team = quotient(b, t->thread, ATTEND_LANES);
  t->lane = rest(b, t->thread, ATTEND_LANES);
  g.lane = rest(b, t->thread, PEGEN_PTX_BLOCK / ATTEND_WARPS);
  attend_set_emitters(t, native);
  if (of_keys) emit_keys(&g);
  else emit_queries(&g);
  ir_return(b);
}
