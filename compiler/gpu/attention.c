/* gpu/attention: the walk over tiles of keys; see gpu/attention.h.
 *
 * A tile's values are on their way while its scores are computed, and the next tile's keys while the output is
 * summed: three barriers of the block a tile. What 8 threads tell each other of a row (maxima, probabilities) passes
 * through the row's end in shared memory, between barriers of the warp.
 */
#include "gpu/attention.h"
#include "gpu/attention_backward.h"
#include "gpu/gradient.h"
#include "gpu/mma.h"

#include "base/diag.h"
#include "base/number.h"
#include "gpu/index.h"
#include "mlir/exp2.h"

#include "kernel/launch.h"

#include <math.h>

enum { HELD_QUADS = 8 };

/* A maximum no score is expected below: a query that sees nothing keeps it, and its sum stays 0. */
static const double NOTHING_SEEN = -0x1p126;

static attend_matrix key_rows(const attend *t) { return (attend_matrix){t->rows, t->shape.key_pitch}; }

/* What goes from one tile of keys to the next: of each of a thread's queries the maximum, its own part of the sum, and
 * its channels of the output; and the keys that are on their way. */
typedef struct progress {
  ir_value maximum[ATTEND_MOST_ROWS], sum[ATTEND_MOST_ROWS],
      output[ATTEND_MOST_SUMS]; /* output: [rows][quads] of 4 lanes */
  ir_value *ahead;
} progress;

/* One tile of keys. */
typedef struct key_run {
  ir_value first; /* i32 */
  ir_value score[ATTEND_MOST_PAIRS]; /* [rows][columns] */
  ir_value decay[ATTEND_MOST_ROWS];
} key_run;

/* ---- scores ---- */

/* What pairs add, computed one after the other in a loop, and laid where their scores will be. */
static void lay_pairs(attend *t, ir_value first_key) {
  ir *b = t->b;
  ir_loop keys = ir_for(b, i64(b, 0), i64(b, t->shape.columns));
  ir_value key = attend_column_of_thread(t, narrow(b, keys.index));
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, t->shape.rows));
  ir_value query = attend_row_of_thread(t, narrow(b, rows.index));
  ir_value at = attend_score_at(t, query, key), of_key = add(b, first_key, key);
  ir_store(b, attend_pair(t, query, add(b, t->first, query), key, of_key), at, 4, false);
  ir_end_for(b, rows);
  ir_end_for(b, keys);
}

static ir_value pair_of(attend *t, int row, int column, ir_value first_key) {
  ir *b = t->b;
  ir_value query = attend_own_row(t, row), key = attend_own_column(t, column);
  if (!attend_pair_is_short(t->p)) return ir_load(b, b->f32, attend_score_at(t, query, key), 4);
  ir_value of_key = add(b, first_key, key);
  return attend_pair(t, query, add(b, t->first, query), key, of_key);
}

static ir_value score_of(attend *t, ir_value product, ir_value query, ir_value key, ir_value first_key) {
  attend_pair_of pair = {.query = query, .query_token = add(t->b, t->first, query), .key = key};
  pair.key_token = add(t->b, first_key, key);
  return attend_score(t, product, &pair);
}

/* Final scores of the thread's pairs: those that are long one after the other in a loop, laid where products were. */
static void finish_scores(attend *t, ir_value first_key, ir_value *score) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  for (int i = 0; i < s->rows * s->columns; i++) {
    ir_value query = attend_own_row(t, i / s->columns), key = attend_own_column(t, i % s->columns);
    if (attend_pair_is_short(t->p)) score[i] = score_of(t, score[i], query, key, first_key);
    else ir_store(b, score[i], attend_score_at(t, query, key), 4, false);
  }
  if (attend_pair_is_short(t->p)) return;
  ir_loop keys = ir_for(b, i64(b, 0), i64(b, s->columns));
  ir_value key = attend_column_of_thread(t, narrow(b, keys.index));
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, s->rows));
  ir_value query = attend_row_of_thread(t, narrow(b, rows.index)), at = attend_score_at(t, query, key);
  ir_store(b, score_of(t, ir_load(b, b->f32, at, 4), query, key, first_key), at, 4, false);
  ir_end_for(b, rows);
  ir_end_for(b, keys);
  for (int i = 0; i < s->rows * s->columns; i++) {
    ir_value own_query = attend_own_row(t, i / s->columns), own_key = attend_own_column(t, i % s->columns);
    score[i] = ir_load(b, b->f32, attend_score_at(t, own_query, own_key), 4);
  }
}

static void add_products(attend *t, int begin, int end, int step, ir_value *sums) {
  attend_add_products(t, (attend_matrix){t->queries, t->shape.query_pitch}, key_rows(t), begin, end, step, sums);
}

/* A polynomial's columns are further channels, and come first: pairs that are not encoded then begin at 0 again. */
static void add_columns(attend *t, ir_value first_key, ir_value *score) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  add_products(t, s->columns_at, s->width, ATTEND_QUAD, score);
  for (int i = 0; i < s->rows * s->columns; i++) {
    ir_value query = add(b, t->first, attend_own_row(t, i / s->columns)),
             key = add(b, first_key, attend_own_column(t, i % s->columns));
    ir_value encoded = attend_encoded(t, query, key);
    if (encoded.ptr) score[i] = ir_select(b, encoded, score[i], ir_float(b, b->f32, 0));
  }
}

static void emit_scores(attend *t, key_run *k) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  bool pairs = t->p->bias || t->p->matrix;
  for (int i = 0; i < s->rows * s->columns; i++) k->score[i] = ir_float(b, b->f32, 0);
  if (attend_has_columns(t->p)) add_columns(t, k->first, k->score);
  add_products(t, 0, t->p->head_dim, ATTEND_QUAD, k->score);
  if (pairs && !attend_pair_is_short(t->p)) lay_pairs(t, k->first);
  for (int i = 0; pairs && i < s->rows * s->columns; i++)
    k->score[i] = attend_paired(t, k->score[i], pair_of(t, i / s->columns, i % s->columns, k->first));
  if (t->p->score) finish_scores(t, k->first, k->score);
  for (int i = 0; i < s->rows; i++) {
    ir_value limit = attend_limit_of(t, add(b, t->first, attend_own_row(t, i)));
    for (int j = 0; j < s->columns; j++) {
      ir_value *score = &k->score[i * s->columns + j];
      *score = ir_select(b, less(b, add(b, k->first, attend_own_column(t, j)), limit), *score,
                         ir_float(b, b->f32, -INFINITY));
    }
  }
}

/* ---- softmax and output ---- */

/* Scores become probabilities up to the row's sum, in shared memory; the thread's rows decay by what their maxima have
 * grown. */
static void emit_softmax(attend *t, key_run *k, progress *now) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  for (int i = 0; i < s->rows; i++) {
    ir_value most = k->score[i * s->columns];
    for (int j = 1; j < s->columns; j++) most = larger(b, k->score[i * s->columns + j], most);
    ir_store(b, most, attend_own_word(t, attend_own_row(t, i)), 4, false);
  }
  ir_wait(b, IR_BARRIER_WARP);
  for (int i = 0; i < s->rows; i++) {
    ir_value words[ATTEND_LANES], maximum = now->maximum[i];
    attend_all_words(t, attend_own_row(t, i), words);
    for (int lane = 0; lane < ATTEND_LANES; lane++) maximum = larger(b, words[lane], maximum);
    k->decay[i] = emit_exp2(b, sub(b, now->maximum[i], maximum));
    now->maximum[i] = maximum;
    now->sum[i] = mul(b, now->sum[i], k->decay[i]);
    for (int j = 0; j < s->columns; j++) {
      ir_value p = emit_exp2(b, sub(b, k->score[i * s->columns + j], maximum));
      ir_value key = attend_own_column(t, j);
      ir_store(b, p, attend_score_at(t, attend_own_row(t, i), key), 4, false);
      now->sum[i] = add(b, now->sum[i], p);
    }
  }
}

/* output = output decay + p v. */
static void emit_output(attend *t, const key_run *k, progress *now) {
  ir *b = t->b;
  int count = t->shape.rows * t->shape.quads;
  MlirType four = ir_vector(b, ATTEND_QUAD, b->f32);
  for (int i = 0; i < count; i++)
    now->output[i] = mul(b, now->output[i], ir_broadcast(b, four, k->decay[i / t->shape.quads]));
  attend_add_rows(t, key_rows(t), t->shape.quads, now->output);
}

/* Of a team's queries the first is written by its first thread, the second by the second, ... */
static void emit_lse(attend *t, const ir_value *maxima, const ir_value *sums) {
  ir *b = t->b;
  ir_value maximum = maxima[0], sum = sums[0];
  for (int i = 1; i < t->shape.rows; i++) {
    ir_value own = ir_compare_int(b, "eq", t->lane, i32(b, i));
    maximum = ir_select(b, own, maxima[i], maximum);
    sum = ir_select(b, own, sums[i], sum);
  }
  ir_value query = attend_row_of_thread(t, t->lane);
  attend_store_lse(t, less(b, t->lane, i32(b, t->shape.rows)), query, maximum, sum);
}

/* Of the thread's query `row` its channels [4 lane + 32 quad, ... + 4) among the queries. */
static ir_value quad_at(attend *t, int row, int quad) {
  ir *b = t->b;
  ir_value at = attend_row_at(t, t->queries, attend_own_row(t, row), t->shape.query_pitch);
  at = ir_offset(b, at, wide(b, scaled(b, t->lane, 4 * ATTEND_QUAD)));
  return ir_offset_const(b, at, 4LL * quad * ATTEND_QUAD * ATTEND_LANES);
}

/* output / sum, or 0 where a query saw nothing. */
static void emit_result(attend *t, const progress *end) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  attend_rows out = attend_rows_of(t, PEGEN_PTX_ATTENTION_OUT, t->head, t->p->value_dim);
  ir_value zero = ir_float(b, b->f32, 0), one = ir_float(b, b->f32, 1), sums[ATTEND_MOST_ROWS] = {{NULL}};
  for (int i = 0; i < s->rows; i++) ir_store(b, end->sum[i], attend_own_word(t, attend_own_row(t, i)), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
  for (int i = 0; i < s->rows; i++) {
    ir_value token = add(b, t->first, attend_own_row(t, i)), sum = sums[i] = attend_sum_words(t, attend_own_row(t, i));
    ir_value inverse = ir_select(b, ir_compare_float(b, "oeq", sum, zero), zero, ir_op2(b, "arith.divf", one, sum));
    ir_branch given = ir_if(b, less(b, token, t->tokens));
    for (int quad = 0; quad < s->quads; quad++) {
      ir_value v = end->output[i * s->quads + quad];
      attend_store_quad(t, &out, token, quad, mul(b, v, ir_broadcast(b, ir_type(v), inverse)));
    }
    ir_end_if(b, given);
  }
  emit_lse(t, end->maximum, sums);
}

/* The same of values that were turned: what a query gathered is turned back, in the memory that its row had. */
static void emit_turned_result(attend *t, const progress *end) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  attend_rows out = attend_rows_of(t, PEGEN_PTX_ATTENTION_OUT, t->head, t->p->value_dim);
  attend_turning back = {
      .memory = t->queries, .pitch = s->query_pitch, .count = s->queries, .places = t->query_places, .back = true};
  ir_value zero = ir_float(b, b->f32, 0), one = ir_float(b, b->f32, 1), sums[ATTEND_MOST_ROWS] = {{NULL}};
  MlirType four = ir_vector(b, ATTEND_QUAD, b->f32);
  for (int i = 0; i < s->rows; i++) ir_store(b, end->sum[i], attend_own_word(t, attend_own_row(t, i)), 4, false);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the queries */
  for (int i = 0; i < s->rows; i++) {
    ir_value sum = sums[i] = attend_sum_words(t, attend_own_row(t, i));
    ir_value inverse = ir_select(b, ir_compare_float(b, "oeq", sum, zero), zero, ir_op2(b, "arith.divf", one, sum));
    for (int quad = 0; quad < s->quads; quad++)
      ir_store(b, mul(b, end->output[i * s->quads + quad], ir_broadcast(b, four, inverse)), quad_at(t, i, quad), 16,
               false);
  }
  ir_wait(b, IR_BARRIER_BLOCK);
  attend_turn_rows(t, &back);
  ir_wait(b, IR_BARRIER_BLOCK);
  for (int i = 0; i < s->rows; i++) {
    ir_value token = add(b, t->first, attend_own_row(t, i));
    ir_branch given = ir_if(b, less(b, token, t->tokens));
    for (int quad = 0; quad < s->quads; quad++)
      attend_store_quad(t, &out, token, quad, ir_load(b, four, quad_at(t, i, quad), 16));
    ir_end_if(b, given);
  }
  emit_lse(t, end->maximum, sums);
}

/* ---- the walk ---- */

/* As one list, for a loop. */
static int flatten(const attend *t, const progress *p, int n_ahead, ir_value *values) {
  const attend_shape *s = &t->shape;
  int count = 0;
  for (int i = 0; i < s->rows; i++) values[count++] = p->maximum[i];
  for (int i = 0; i < s->rows; i++) values[count++] = p->sum[i];
  for (int i = 0; i < s->rows * s->quads; i++) values[count++] = p->output[i];
  for (int i = 0; i < n_ahead; i++) values[count++] = p->ahead[i];
  return count;
}

static void unflatten(const attend *t, progress *p, int n_ahead, const ir_value *values) {
  const attend_shape *s = &t->shape;
  for (int i = 0; i < s->rows; i++) p->maximum[i] = *values++;
  for (int i = 0; i < s->rows; i++) p->sum[i] = *values++;
  for (int i = 0; i < s->rows * s->quads; i++) p->output[i] = *values++;
  for (int i = 0; i < n_ahead; i++) p->ahead[i] = *values++;
}

static progress begin_progress(attend *t) {
  ir *b = t->b;
  progress p = {.ahead = arena_array(t->memory, ir_value, IR_MAX_RESULTS)};
  for (int i = 0; i < t->shape.rows; i++) {
    p.maximum[i] = ir_float(b, b->f32, NOTHING_SEEN);
    p.sum[i] = ir_float(b, b->f32, 0);
  }
  for (int i = 0; i < t->shape.rows * t->shape.quads; i++)
    p.output[i] = ir_float(b, ir_vector(b, ATTEND_QUAD, b->f32), 0);
  return p;
}

/* Those of keys, or of values in their place. */
static void turn_keys(attend *t, bool are_values) {
  attend_turn_rows(t, &(attend_turning){.memory = t->rows,
                                        .pitch = t->shape.key_pitch,
                                        .count = t->shape.keys,
                                        .places = t->places,
                                        .watched = are_values});
  ir_wait(t->b, IR_BARRIER_BLOCK);
}

static void turn_queries(attend *t) {
  ir_wait(t->b, IR_BARRIER_BLOCK);
  attend_turn_rows(t, &(attend_turning){.memory = t->queries,
                                        .pitch = t->shape.query_pitch,
                                        .count = t->shape.queries,
                                        .places = t->query_places,
                                        .of_queries = true});
}

static void emit_tile(attend *t, const attend_rows *k, const attend_rows *v, ir_value first, const ir_value *origin,
                      progress *now) {
  ir *b = t->b;
  key_run run = {.first = first};
  ir_value *values = arena_array(t->memory, ir_value, IR_MAX_RESULTS);
  attend_store(t, k, first, t->keys, now->ahead, false);
  if (t->places.ptr) attend_copy_places(t, PEGEN_PTX_ATTENTION_KEY_POSITIONS, first, t->shape.keys, t->places, origin);
  attend_lay_numbers_of(t, true, first, t->shape.keys);
  if (attend_has_columns(t->p))
    attend_key_columns(t, &(attend_column_rows){t->rows, t->shape.key_pitch, first, t->shape.keys});
  ir_wait(b, IR_BARRIER_BLOCK);
  attend_load(t, v, first, t->keys, values);
  if (t->turns_rows) turn_keys(t, false);
  emit_scores(t, &run);
  emit_softmax(t, &run, now);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the keys */
  attend_store(t, v, first, t->keys, values, true);
  ir_wait(b, IR_BARRIER_BLOCK);
  if (t->p->turns_values) turn_keys(t, true);
  attend_load(t, k, add(b, first, i32(b, t->shape.keys)), t->keys, now->ahead);
  emit_output(t, &run, now);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the values */
}

static void emit_walk(attend *t) {
  ir *b = t->b;
  const attention_plan *p = t->p;
  ir_value of_keys = ir_op2(b, "arith.divui", t->head, attend_short_parameter(t, PEGEN_PTX_ATTENTION_GROUP));
  attend_rows q = attend_rows_of(t, PEGEN_PTX_ATTENTION_Q, t->head, p->head_dim),
              k = attend_rows_of(t, PEGEN_PTX_ATTENTION_K, of_keys, p->head_dim);
  attend_rows v = attend_rows_of(t, PEGEN_PTX_ATTENTION_V, of_keys, p->value_dim);
  ir_value scale = attend_scale(t);
  progress now = begin_progress(t);
  int n_ahead = attend_ahead(t, p->head_dim);
  attend_clear_spoilt(t);
  if (attend_has_columns(p)) {
    attend_column_rows queries = {t->queries, t->shape.query_pitch, t->first, t->shape.queries};
    attend_query_columns(t, &queries, t->rows, scale);
  }
  ir_value at_least_one = ir_select(b, less(b, i32(b, 0), t->keys), t->keys, i32(b, 1));
  attend_load(t, &k, i32(b, 0), at_least_one, now.ahead);
  attend_copy(t, &q, t->first, t->tokens, t->shape.queries, t->queries, t->shape.query_pitch, scale, false);
  ir_value origin[SPEC_MAX_AXES];
  if (t->places.ptr) {
    attend_find_origin(t, PEGEN_PTX_ATTENTION_POSITIONS, t->first, t->shape.queries, origin);
    attend_copy_places(t, PEGEN_PTX_ATTENTION_POSITIONS, t->first, t->shape.queries, t->query_places, origin);
  }
  attend_lay_numbers_of(t, false, t->first, t->shape.queries);
  if (t->turns_rows) turn_queries(t);
  if (attend_has_pairs(p)) attend_pair_begin(t);
  ir_value values[IR_MAX_RESULTS], inside[IR_MAX_RESULTS];
  ir_value tiles = quotient_up(b, attend_end_of_keys(t), t->shape.keys);
  int count = flatten(t, &now, n_ahead, values);
  ir_loop loop = ir_for_with(b, i64(b, 0), wide(b, tiles), count, values, inside);
  unflatten(t, &now, n_ahead, inside);
  emit_tile(t, &k, &v, scaled(b, ir_cast(b, "arith.trunci", loop.index, b->i32), t->shape.keys), origin, &now);
  flatten(t, &now, n_ahead, inside);
  ir_end_for_with(b, loop, count, inside, values);
  unflatten(t, &now, n_ahead, values);
  if (p->turns_values) emit_turned_result(t, &now);
  else emit_result(t, &now);
}

/* ---- entries ---- */

/* The last tiles first: with a causal mask they have the most to do. */
static void set_indices(attend *t) {
  ir *b = t->b;
  ir_value heads = attend_short_parameter(t, PEGEN_PTX_ATTENTION_HEADS);
  t->tokens = attend_short_parameter(t, PEGEN_PTX_ATTENTION_TOKENS);
  t->keys = attend_short_parameter(t, PEGEN_PTX_ATTENTION_KEYS);
  t->head = attend_set_tile(t, t->block, t->tokens, heads, true);
  t->team = quotient(b, t->thread, ATTEND_LANES);
  t->lane = rest(b, t->thread, ATTEND_LANES);
}

static void emit_attention(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                           bool host) {
  const attend_design *design = program->plan;
  attend t = {.b = b, .memory = a, .p = design->forward, .entry = entry, .shape = design->shape};
  t.turns_rows = design->forward != design->p;
  if (t.shape.rows > ATTEND_MOST_ROWS || t.shape.columns > ATTEND_MOST_ROWS ||
      t.shape.rows * t.shape.quads > ATTEND_MOST_SUMS)
    diag_bug("gpu_attention", "the tile is too large");
  gpu_function f = gpu_open_function(b, a, entry->name, program->attention->n_parameters, entry->blocks, host);
  t.parameter = f.parameter;
  t.block = f.block;
  t.thread = f.thread;
  attend_declare_memory(&t);
  set_indices(&t);
  attend_set_emitters(&t, native);
  t.exprs.head = t.head;
  emit_walk(&t);
  ir_return(b);
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  switch (entry->kind) {
  case GPU_ATTENTION_QUERIES:
  case GPU_ATTENTION_KEYS: gpu_emit_attention_gradient(b, a, program, entry, native, host); break;
  case GPU_MMA_FINISH: gpu_emit_mma_finish(b, a, program, entry, host); break;
  case GPU_MMA_TURN: gpu_emit_mma_turn(b, a, program, entry, native, host); break;
  case GPU_MMA:
  case GPU_MMA_FEW:
  case GPU_MMA_QUERIES:
  case GPU_MMA_KEYS:
  case GPU_MMA_VALUES:
  case GPU_MMA_QUERIES_GAINS:
  case GPU_MMA_KEYS_GAINS: gpu_emit_mma(b, a, program, entry, native, host); break;
  case GPU_ATTENTION_WEIGHTS: gpu_emit_attention_weights(b, a, program, entry, native, host); break;
  default: emit_attention(b, a, program, entry, native, host);
  }
}

static const thread_tile *make_tile(arena *a, const attend_design *d, int element, int access) {
  thread_tile *t = thread_tile_of_blocks(a, expr_pool_blocks(d->p->spec->pool), element, access);
  t->owners = d->shape.queries;
  return t;
}

/* Blocks that a multiprocessor holds: fewer where a thread has much of the output in its registers, and no more is to
 * be had where rows are so long that it has one query. */
static int blocks_of(const attend_shape *s) { return s->rows == 1 ? 1 : s->rows * s->quads > HELD_QUADS ? 2 : 3; }

/* Whether tile programs serve rows however these lie, with what every chip has that has such programs. */
static bool is_replaced(const attend_design *d) {
  const mma_plan *plan = d->mma[MMA_ANY_ROWS][MMA_FORWARD];
  return plan && !attend_turns_by_head(d) && plan->shape.shared <= MMA_ANY_SHARED;
}

static void add_entry(arena *a, gpu_program *program, const attend_design *d, int dtype, bool narrow) {
  int element = number_bytes(dtype), access = narrow ? element : THREAD_PIECE;
  const char *name =
      arena_printf(a, "%s_attention_%s%s", program->spec->name, number_name(dtype), narrow ? "_narrow" : "");
  program->entry[program->n_entries++] = (gpu_entry){.name = name,
                                                     .of = PEGEN_LAUNCH_attention,
                                                     .dtype = dtype,
                                                     .access = access,
                                                     .tile = make_tile(a, d, element, access),
                                                     .is_replaced = is_replaced(d),
                                                     .flight = d->shape.keys,
                                                     .blocks = blocks_of(&d->shape)};
}

/* What turns rows for tile programs. */
static void add_turn_entry(arena *a, gpu_program *program, const attend_design *d, int dtype) {
  int element = number_bytes(dtype);
  if (d->products == d->p) return;
  program->entry[program->n_entries++] =
      (gpu_entry){.name = arena_printf(a, "%s_attention_%s_turn", program->spec->name, number_name(dtype)),
                  .of = PEGEN_LAUNCH_attention,
                  .word = d->p->turns_values ? PEGEN_PTX_WORD_TURN_ALL : PEGEN_PTX_WORD_TURN,
                  .kind = GPU_MMA_TURN,
                  .dtype = dtype,
                  .access = element,
                  .tile = thread_tile_of_blocks(a, expr_pool_blocks(d->p->spec->pool), element, element)};
}

/* Adds an entry of a tile program. Entries of wide accesses come before those that take any rows, so that they are
 * chosen where rows allow. */
static void add_mma_entry(arena *a, gpu_program *program, const attend_design *d, int dtype, bool narrow,
                          mma_kind kind) {
  static const struct {
    pegen_launch_entry of;
    const char *word[2]; /* of rows as they are; of rows that come turned */
  } rows[MMA_KIND_COUNT] = {
      [MMA_FORWARD] = {PEGEN_LAUNCH_attention, {NULL, PEGEN_PTX_WORD_TURNED}},
      [MMA_FEW] = {PEGEN_LAUNCH_attention, {PEGEN_PTX_WORD_FEW, PEGEN_PTX_WORD_FEW_TURNED}},
      [MMA_QUERIES] = {PEGEN_LAUNCH_attention_backward, {PEGEN_PTX_WORD_QUERIES_MMA, PEGEN_PTX_WORD_QUERIES_TURNED}},
      [MMA_KEYS] = {PEGEN_LAUNCH_attention_backward, {PEGEN_PTX_WORD_KEYS_MMA, PEGEN_PTX_WORD_KEYS_TURNED}},
      [MMA_VALUES] = {PEGEN_LAUNCH_attention_backward, {PEGEN_PTX_WORD_VALUES_MMA, PEGEN_PTX_WORD_VALUES_TURNED}},
      [MMA_QUERIES_GAINS] = {PEGEN_LAUNCH_attention_backward,
                             {PEGEN_PTX_WORD_QUERIES_GAINS, PEGEN_PTX_WORD_QUERIES_GAINS_TURNED}},
      [MMA_KEYS_GAINS] = {PEGEN_LAUNCH_attention_backward,
                          {PEGEN_PTX_WORD_KEYS_GAINS, PEGEN_PTX_WORD_KEYS_GAINS_TURNED}},
  };
  const mma_plan *plan = mma_plans_of(d, dtype, narrow)[kind];
  int element = number_bytes(dtype), lanes = THREAD_PIECE / element, access = narrow ? element : THREAD_PIECE;
  if (!plan || (narrow && kind == MMA_FEW) || (!narrow && (d->p->head_dim % lanes || d->p->value_dim % lanes))) return;
  thread_tile *tile = thread_tile_of_blocks(a, expr_pool_blocks(d->p->spec->pool), element, access);
  tile->owners = plan->shape.tile.own;
  program->entry[program->n_entries++] =
      (gpu_entry){.name = arena_printf(a, "%s_%s_%s_%s%s", program->spec->name, plan->program->name, number_name(dtype),
                                       plan->machine->name, narrow ? "_narrow" : ""),
                  .of = rows[kind].of,
                  .word = rows[kind].word[d->products != d->p && !plan->p->matrix],
                  .kind = (gpu_entry_kind)(GPU_MMA + kind),
                  .dtype = dtype,
                  .access = access,
                  .tile = tile,
                  .flight = plan->shape.tile.streamed,
                  .blocks = 2,
                  .shared = (int)plan->shape.shared};
  if (kind != MMA_FEW) return;
  program->entry[program->n_entries++] = (gpu_entry){
      .name = arena_printf(a, "%s_attention_finish_%s", program->spec->name, number_name(dtype)),
      .of = PEGEN_LAUNCH_attention_finish,
      .kind = GPU_MMA_FINISH,
      .dtype = dtype,
      .access = THREAD_PIECE,
      .tile = thread_tile_of_blocks(a, expr_pool_blocks(d->p->spec->pool), number_bytes(dtype), THREAD_PIECE)};
}

/* Whether an entry's blocks are tiles of queries. */
static bool has_grid(const gpu_program *program, int entry) {
  gpu_entry_kind kind = program->entry[entry].kind;
  return kind == GPU_ROWS || kind == GPU_MMA;
}

static void print_work(FILE *f, const gpu_program *program) {
  const attend_design *design = program->plan;
  const attention_plan *p = design->forward;
  fprintf(f, "// attention, head_dim %d, value_dim %d; ", p->head_dim, p->value_dim);
  if (p->columns)
    fprintf(f, "%d terms of a bias, as %d columns beside the products", p->spec->n_blocks, p->columns->n_columns);
  else fprintf(f, "%d operations of a pair beside the products", p->operations);
  if (p != design->p) fprintf(f, "; rows are turned once each in a tile");
  fprintf(f, ".\n//\n// entry, bytes of an access\n");
  for (int i = 0; i < program->n_entries; i++)
    fprintf(f, "//   %-40s %4d\n", program->entry[i].name, program->entry[i].access);
  fprintf(f, "// Parameters, 8 bytes each: queries (N), keys (M), heads, heads of q for one of k, causal (0 or 1), "
             "scale times log2(e) as float32 bits,\n");
  fprintf(f, "//   positions of queries, their type (0 f32, 1 f64, 2 i32, 3 i64) and strides (batch, token, axis); the "
             "same of keys,\n");
  fprintf(f, "//   q, k, v, out: address and strides (batch, token, head)");
  const spec *s = p->spec;
  if (s->n_operands) fprintf(f, ",\n//   operands, address and type each (0 f32, 1 f64, 2 f16, 3 bf16):");
  for (int i = 0; i < s->n_operands; i++) fprintf(f, "%s %s", i ? "," : "", s->operand[i].name);
  for (int i = 0; i < s->n_inputs; i++)
    fprintf(f, "%s %s",
            i ? ","
              : ",\n//   inputs of a query or key, address, type (as of operands), strides (batch, token, head) each:",
            s->input[i].name);
  fprintf(f, ",\n//   lse (float32; 0: not wanted): address and strides (batch, token, head)");
  if (attention_reads_inputs(p)) fprintf(f, ",\n//   of each input the heads of q that read one of its");
  fprintf(f, ".\n// Strides are in bytes. Grid of a kind of entry; of few queries docs/embedding-ptx.md.\n");
  for (int i = 0; i < program->n_entries; i++)
    if (program->entry[i].of == PEGEN_LAUNCH_attention && has_grid(program, i))
      fprintf(f, "//   %-40s x = ceil(queries / %d) * heads * batches\n", program->entry[i].name,
              program->entry[i].tile->owners);
  attend_print_gradients(f, program);
}

/* NULL after a diag_error: what does not fit, in words. */
static const attend_design *make_design(arena *a, const attention_plan *p) {
  const spec *s = p->spec;
  if (p->columns && p->score) {
    diag_error(
        s->file, s->line,
        "a score beside a pe.polynomial is made for processors only; expected --target x86-64-v3 or the like, or "
        "a description without 'score'");
    return NULL;
  }
  attend_design *d = arena_new(a, attend_design);
  *d = (attend_design){.p = p, .forward = attend_turns_rows(p) ? attend_plan_of_turned(a, p) : p};
  d->gradient = attend_gradient_plan(a, p);
  d->products = attend_plan_of_products(a, p);
  static const mma_machine *const machines[MMA_MACHINES] = {
      [MMA_16_BITS] = &mma_sync, [MMA_FLOATS] = &mma_simt, [MMA_ANY_ROWS] = &mma_simt_narrow};
  for (int i = 0; i < MMA_MACHINES; i++) {
    for (int kind = 0; kind < MMA_KIND_COUNT; kind++) d->mma[i][kind] = mma_plan_of(a, p, machines[i], (mma_kind)kind);
    if (attend_has_columns(p) && !d->mma[i][MMA_QUERIES]) /* it keeps the weights that those of keys read */
      d->mma[i][MMA_KEYS] = d->mma[i][MMA_VALUES] = NULL;
  }
  d->shape = attend_shape_of(a, d->forward);
  if (d->shape.rows > 0) return d;
  const char *columns = p->columns ? arena_printf(a, " and %d columns", p->columns->n_columns) : "";
  diag_error(s->file, s->line,
             "kernels of this kind are made for processors only: tiles of %d and %d channels%s do not fit in a GPU's "
             "shared memory; expected smaller head_dim and value_dim%s, or --target x86-64-v3 or the like",
             p->head_dim, p->value_dim, columns, p->columns ? ", a lower degree" : "");
  return NULL;
}

const gpu_program *gpu_attention_program(arena *a, const attention_plan *p, unsigned dtypes, bool gradients) {
  const spec *s = p->spec;
  const attend_design *design = make_design(a, p);
  if (!design) return NULL;
  const attention_plan *of = design->gradient;
  gpu_program *program = arena_new(a, gpu_program);
  gpu_attention_facts *attention = arena_new(a, gpu_attention_facts);
  *attention = (gpu_attention_facts){.n_parameters = attend_parameters(s),
                                     .value_dim = p->value_dim,
                                     .placed = attention_is_placed(p),
                                     .grid_only = p->by_rows,
                                     .indexed = p->indexed,
                                     .gaining = gradients && attend_gradient_fits(of) ? attend_gaining(of) : 0};
  if (gradients && attend_gradient_fits(of) && of->sums_inputs) attention->n_sums = of->n_sums;
  *program = (gpu_program){.spec = s,
                           .plan = design,
                           .per_head = p->per_head,
                           .operations = p->operations,
                           .emit = emit,
                           .print_work = print_work,
                           .attention = attention};
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int lanes = THREAD_PIECE / number_bytes(dtype);
    add_turn_entry(a, program, design, dtype);
    add_mma_entry(a, program, design, dtype, false, MMA_FORWARD);
    add_mma_entry(a, program, design, dtype, false, MMA_FEW);
    add_mma_entry(a, program, design, dtype, true, MMA_FORWARD);
    if (p->head_dim % lanes == 0 && p->value_dim % lanes == 0) add_entry(a, program, design, dtype, false);
    add_entry(a, program, design, dtype, true);
  }
  for (int dtype = 0; gradients && dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype) || !attend_gradient_fits(of)) continue;
    for (int narrow = 0; narrow < 2; narrow++)
      for (int kind = MMA_QUERIES; kind < MMA_KIND_COUNT; kind++)
        add_mma_entry(a, program, design, dtype, narrow, (mma_kind)kind);
  }
  if (gradients) gpu_add_attention_gradients(a, program, of, dtypes);
  return program;
}
