/* gpu/attention: the walk over tiles of keys; see gpu/attention.h.
 *
 * A tile's values are on their way while its scores are computed, and the next tile's keys while the output is
 * summed: three barriers of the block a tile. What 8 threads tell each other of a row (maxima, probabilities) passes
 * through the row's end in shared memory, between barriers of the warp.
 */
#include "gpu/attention.h"

#include "base/diag.h"
#include "base/number.h"
#include "gpu/index.h"
#include "mlir/exp2.h"

#include "kernel/launch.h"

#include <math.h>

enum {
  MOST_PAIRS = 16,
  MOST_SUMS = 16,
  MOST_ROWS = 4,
  HELD_QUADS = 8,
  TEAMS = PEGEN_PTX_BLOCK / ATTEND_LANES,
  QUAD_CHANNELS = ATTEND_QUAD * ATTEND_LANES
};

/* A maximum no score is expected below: a query that sees nothing keeps it, and its sum stays 0. */
static const double NOTHING_SEEN = -0x1p126;

static ir_value short_parameter(attend *t, int index) {
  return ir_cast(t->b, "arith.trunci", t->parameter[index], t->b->i32);
}

/* NaN stays: a comparison with it fails, and then y is taken. */

/* What goes from one tile of keys to the next: of each of a thread's queries the maximum, its own part of the sum, and
 * its channels of the output; and the keys that are on their way. */
typedef struct progress {
  ir_value maximum[MOST_ROWS], sum[MOST_ROWS], output[MOST_SUMS]; /* output: [rows][quads] of 4 lanes */
  ir_value *ahead;
} progress;

/* One tile of keys. */
typedef struct key_run {
  ir_value first; /* i32 */
  ir_value score[MOST_PAIRS]; /* [rows][columns] */
  ir_value decay[MOST_ROWS];
} key_run;

/* ---- places of a thread's queries and keys ---- */

static ir_value query_of(attend *t, int row) { return add(t->b, t->team, i32(t->b, (int64_t)row * TEAMS)); }
static ir_value key_of(attend *t, int column) { return add(t->b, t->lane, i32(t->b, (int64_t)column * ATTEND_LANES)); }

static ir_value score_at(attend *t, ir_value query, ir_value key) {
  ir *b = t->b;
  return ir_offset(b, t->scores, wide(b, scaled(b, add(b, scaled(b, query, t->shape.score_pitch), key), 4)));
}

/* What the thread tells its 8 of a query. */
static ir_value own_word(attend *t, int row) {
  return score_at(t, query_of(t, row), add(t->b, t->lane, i32(t->b, t->shape.keys)));
}

/* What all 8 have told of a query: 8 float32. */
static void all_words(attend *t, int row, ir_value *words) {
  ir *b = t->b;
  ir_value at = score_at(t, query_of(t, row), i32(b, t->shape.keys));
  for (int half = 0; half < ATTEND_LANES; half += ATTEND_QUAD) {
    ir_value four = ir_load(b, ir_vector(b, ATTEND_QUAD, b->f32), ir_offset_const(b, at, 4LL * half), 16);
    for (int i = 0; i < ATTEND_QUAD; i++) words[half + i] = ir_extract(b, four, i);
  }
}

/* ---- scores ---- */

/* Adds the products of channels [begin, end), `step` (1 or 4) at a time. */
static void add_products(attend *t, int begin, int end, int step, ir_value *sums) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  MlirType type = step > 1 ? ir_vector(b, step, b->f32) : b->f32;
  ir_value q_row[MOST_ROWS], k_row[MOST_ROWS], q[MOST_ROWS], k[MOST_ROWS], now[MOST_PAIRS];
  for (int i = 0; i < s->rows; i++) q_row[i] = attend_row_at(t, t->queries, query_of(t, i), s->query_pitch);
  for (int j = 0; j < s->columns; j++) k_row[j] = attend_row_at(t, t->rows, key_of(t, j), s->key_pitch);
  ir_loop loop = ir_for_with(b, i64(b, begin / step), i64(b, (end + step - 1) / step), s->rows * s->columns, sums, now);
  ir_value at = mul(b, loop.index, i64(b, 4LL * step));
  for (int i = 0; i < s->rows; i++) q[i] = ir_load(b, type, ir_offset(b, q_row[i], at), 4 * step);
  for (int j = 0; j < s->columns; j++) k[j] = ir_load(b, type, ir_offset(b, k_row[j], at), 4 * step);
  for (int i = 0; i < s->rows; i++)
    for (int j = 0; j < s->columns; j++)
      for (int c = 0; c < step; c++) {
        ir_value *sum = &now[i * s->columns + j];
        *sum = ir_fma(b, step > 1 ? ir_extract(b, q[i], c) : q[i], step > 1 ? ir_extract(b, k[j], c) : k[j], *sum);
      }
  ir_end_for_with(b, loop, s->rows * s->columns, now, sums);
}

/* What pairs add, computed one after the other in a loop, and laid where their scores will be. */
static void lay_pairs(attend *t, ir_value first_key) {
  ir *b = t->b;
  ir_loop keys = ir_for(b, i64(b, 0), i64(b, t->shape.columns));
  ir_value key = add(b, t->lane, scaled(b, ir_cast(b, "arith.trunci", keys.index, b->i32), ATTEND_LANES));
  ir_loop rows = ir_for(b, i64(b, 0), i64(b, t->shape.rows));
  ir_value query = add(b, t->team, scaled(b, ir_cast(b, "arith.trunci", rows.index, b->i32), TEAMS));
  ir_store(b, attend_pair(t, query, add(b, t->first, query), key, add(b, first_key, key)), score_at(t, query, key), 4,
           false);
  ir_end_for(b, rows);
  ir_end_for(b, keys);
}

static ir_value pair_of(attend *t, int row, int column, ir_value first_key) {
  ir *b = t->b;
  ir_value query = query_of(t, row), key = key_of(t, column);
  if (!attend_pair_is_short(t->p)) return ir_load(b, b->f32, score_at(t, query, key), 4);
  return attend_pair(t, query, add(b, t->first, query), key, add(b, first_key, key));
}

/* A bias that hides the key hides its score, too, should that be no number. */
static ir_value paired(attend *t, ir_value score, ir_value pair) {
  ir *b = t->b;
  ir_value sum = add(b, score, pair), hidden = ir_float(b, b->f32, -INFINITY);
  return t->p->hides ? ir_select(b, ir_compare_float(b, "oeq", pair, hidden), hidden, sum) : sum;
}

/* A query sees keys below this: all, or those of its own time. */
static ir_value limit_of(attend *t, ir_value query_token) {
  ir *b = t->b;
  ir_value causal = ir_compare_int(b, "ne", t->parameter[PEGEN_PTX_ATTENTION_CAUSAL], i64(b, 0));
  ir_value own = add(b, add(b, query_token, sub(b, t->keys, t->tokens)), i32(b, 1));
  return ir_select(b, causal, smaller(b, own, t->keys), t->keys);
}

/* A polynomial's columns are further channels, and come first: pairs that are not encoded then begin at 0 again. */
static void add_columns(attend *t, ir_value first_key, ir_value *score) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  add_products(t, s->columns_at, s->width, ATTEND_QUAD, score);
  for (int i = 0; i < s->rows * s->columns; i++) {
    ir_value query = add(b, t->first, query_of(t, i / s->columns)), key = add(b, first_key, key_of(t, i % s->columns));
    ir_value encoded = attend_encoded(t, query, key);
    if (encoded.ptr) score[i] = ir_select(b, encoded, score[i], ir_float(b, b->f32, 0));
  }
}

static void emit_scores(attend *t, key_run *k) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  bool pairs = attend_has_pairs(t->p);
  for (int i = 0; i < s->rows * s->columns; i++) k->score[i] = ir_float(b, b->f32, 0);
  if (attend_has_columns(t->p)) add_columns(t, k->first, k->score);
  for (int begin = 0, end; (begin = attend_next_plain(t->p, begin, &end)) < t->p->head_dim; begin = end)
    add_products(t, begin, end, begin == 0 && end == t->p->head_dim ? ATTEND_QUAD : 1, k->score);
  if (pairs && !attend_pair_is_short(t->p)) lay_pairs(t, k->first);
  for (int i = 0; i < s->rows; i++) {
    ir_value limit = limit_of(t, add(b, t->first, query_of(t, i)));
    for (int j = 0; j < s->columns; j++) {
      ir_value *score = &k->score[i * s->columns + j];
      if (pairs) *score = paired(t, *score, pair_of(t, i, j, k->first));
      *score = ir_select(b, less(b, add(b, k->first, key_of(t, j)), limit), *score, ir_float(b, b->f32, -INFINITY));
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
    ir_store(b, most, own_word(t, i), 4, false);
  }
  ir_wait(b, IR_BARRIER_WARP);
  for (int i = 0; i < s->rows; i++) {
    ir_value words[ATTEND_LANES], maximum = now->maximum[i];
    all_words(t, i, words);
    for (int lane = 0; lane < ATTEND_LANES; lane++) maximum = larger(b, words[lane], maximum);
    k->decay[i] = emit_exp2(b, sub(b, now->maximum[i], maximum));
    now->maximum[i] = maximum;
    now->sum[i] = mul(b, now->sum[i], k->decay[i]);
    for (int j = 0; j < s->columns; j++) {
      ir_value p = emit_exp2(b, sub(b, k->score[i * s->columns + j], maximum));
      ir_store(b, p, score_at(t, query_of(t, i), key_of(t, j)), 4, false);
      now->sum[i] = add(b, now->sum[i], p);
    }
  }
}

/* Adds p v to the sums, four keys at a time; spoilt: not where p is 0, whatever v is. */
static void add_values(attend *t, bool spoilt, ir_value *sums) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  int count = s->rows * s->quads;
  MlirType four = ir_vector(b, ATTEND_QUAD, b->f32);
  ir_value next[MOST_SUMS], p_row[MOST_ROWS], p[MOST_ROWS];
  for (int i = 0; i < s->rows; i++) p_row[i] = score_at(t, query_of(t, i), i32(b, 0));
  ir_value v_row = ir_offset(b, t->rows, wide(b, scaled(b, t->lane, 4 * ATTEND_QUAD)));
  ir_loop loop = ir_for_with(b, i64(b, 0), i64(b, s->keys / ATTEND_QUAD), count, sums, next);
  ir_value at = mul(b, loop.index, i64(b, 4 * ATTEND_QUAD)),
           keys = ir_offset(b, v_row, mul(b, at, i64(b, s->key_pitch)));
  for (int i = 0; i < s->rows; i++) p[i] = ir_load(b, four, ir_offset(b, p_row[i], at), 16);
  for (int key = 0; key < ATTEND_QUAD; key++)
    for (int quad = 0; quad < s->quads; quad++) {
      ir_value v = ir_load(b, four, ir_offset_const(b, keys, 4LL * (key * s->key_pitch + quad * QUAD_CHANNELS)), 16);
      for (int i = 0; i < s->rows; i++) {
        ir_value *sum = &next[i * s->quads + quad], one = ir_extract(b, p[i], key);
        ir_value more = ir_fma(b, ir_broadcast(b, four, one), v, *sum);
        *sum = spoilt ? ir_select(b, ir_compare_float(b, "oeq", one, ir_float(b, b->f32, 0)), *sum, more) : more;
      }
    }
  ir_end_for_with(b, loop, count, next, sums);
}

/* output = output decay + p v. */
static void emit_output(attend *t, const key_run *k, progress *now) {
  ir *b = t->b;
  int count = t->shape.rows * t->shape.quads;
  MlirType four = ir_vector(b, ATTEND_QUAD, b->f32), types[MOST_SUMS];
  ir_value sums[2][MOST_SUMS];
  for (int i = 0; i < count; i++) {
    types[i] = four;
    sums[0][i] = sums[1][i] = mul(b, now->output[i], ir_broadcast(b, four, k->decay[i / t->shape.quads]));
  }
  ir_value spoilt = ir_compare_int(b, "ne", ir_load(b, b->i32, t->spoilt, 4), i32(b, 0));
  ir_choice choice = ir_choose(b, spoilt, count, types);
  add_values(t, true, sums[0]);
  ir_choose_else(b, &choice, count, sums[0]);
  add_values(t, false, sums[1]);
  ir_end_choose(b, choice, count, sums[1], now->output);
}

/* output / sum, or 0 where a query saw nothing. */
static void emit_result(attend *t, const progress *end) {
  ir *b = t->b;
  const attend_shape *s = &t->shape;
  attend_rows out = attend_rows_of(t, PEGEN_PTX_ATTENTION_OUT, t->head, t->p->value_dim);
  ir_value zero = ir_float(b, b->f32, 0), one = ir_float(b, b->f32, 1);
  for (int i = 0; i < s->rows; i++) ir_store(b, end->sum[i], own_word(t, i), 4, false);
  ir_wait(b, IR_BARRIER_WARP);
  for (int i = 0; i < s->rows; i++) {
    ir_value words[ATTEND_LANES], token = add(b, t->first, query_of(t, i));
    all_words(t, i, words);
    ir_value sum = words[0];
    for (int lane = 1; lane < ATTEND_LANES; lane++) sum = add(b, sum, words[lane]);
    ir_value inverse = ir_select(b, ir_compare_float(b, "oeq", sum, zero), zero, ir_op2(b, "arith.divf", one, sum));
    ir_branch given = ir_if(b, less(b, token, t->tokens));
    for (int quad = 0; quad < s->quads; quad++) {
      ir_value v = end->output[i * s->quads + quad];
      attend_store_quad(t, &out, token, quad, mul(b, v, ir_broadcast(b, ir_type(v), inverse)));
    }
    ir_end_if(b, given);
  }
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

/* Off every coordinate goes that of the first key with one, so that differences keep their digits in float32. */
static const two_float *find_origin(attend *t, two_float *origin) {
  ir *b = t->b;
  const spec *s = t->p->spec;
  if (s->grid[0]) return NULL;
  ir_value token = smaller(b, i32(b, s->skip_tokens), sub(b, t->keys, i32(b, 1)));
  token = ir_select(b, less(b, token, i32(b, 0)), i32(b, 0), token);
  gpu_coordinates(b, s, t->parameter + PEGEN_PTX_ATTENTION_KEY_POSITIONS, t->batch, token, origin);
  return origin;
}

static void emit_tile(attend *t, const attend_rows *k, const attend_rows *v, ir_value first, const two_float *origin,
                      progress *now) {
  ir *b = t->b;
  key_run run = {.first = first};
  ir_value *values = arena_array(t->memory, ir_value, IR_MAX_RESULTS);
  attend_store(t, k, first, t->keys, now->ahead, false);
  if (t->places.ptr)
    attend_copy_places(t, PEGEN_PTX_ATTENTION_KEY_POSITIONS, first, t->keys, t->shape.keys, t->places, origin);
  if (attend_has_columns(t->p)) attend_key_columns(t, first);
  ir_wait(b, IR_BARRIER_BLOCK);
  attend_load(t, v, first, t->keys, values);
  emit_scores(t, &run);
  emit_softmax(t, &run, now);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the keys */
  attend_store(t, v, first, t->keys, values, true);
  ir_wait(b, IR_BARRIER_BLOCK);
  attend_load(t, k, add(b, first, i32(b, t->shape.keys)), t->keys, now->ahead);
  emit_output(t, &run, now);
  ir_wait(b, IR_BARRIER_BLOCK); /* all have read the values */
}

/* Keys that some query of the tile sees: [0, end). */
static ir_value end_of_keys(attend *t) {
  ir *b = t->b;
  ir_value last = sub(b, smaller(b, add(b, t->first, i32(b, t->shape.queries)), t->tokens), i32(b, 1)),
           end = limit_of(t, last);
  return ir_select(b, less(b, end, i32(b, 0)), i32(b, 0), end);
}

static void emit_walk(attend *t) {
  ir *b = t->b;
  const attention_plan *p = t->p;
  ir_value of_keys = ir_op2(b, "arith.divui", t->head, short_parameter(t, PEGEN_PTX_ATTENTION_GROUP));
  attend_rows q = attend_rows_of(t, PEGEN_PTX_ATTENTION_Q, t->head, p->head_dim),
              k = attend_rows_of(t, PEGEN_PTX_ATTENTION_K, of_keys, p->head_dim);
  attend_rows v = attend_rows_of(t, PEGEN_PTX_ATTENTION_V, of_keys, p->value_dim);
  ir_value scale = ir_cast(b, "arith.bitcast", short_parameter(t, PEGEN_PTX_ATTENTION_SCALE), b->f32);
  progress now = begin_progress(t);
  int n_ahead = attend_ahead(t, p->head_dim);
  ir_branch one = ir_if(b, ir_compare_int(b, "eq", t->thread, i32(b, 0)));
  ir_store(b, i32(b, 0), t->spoilt, 4, false);
  ir_end_if(b, one);
  if (attend_has_columns(p)) attend_query_columns(t, scale);
  attend_load(t, &k, i32(b, 0), ir_select(b, less(b, i32(b, 0), t->keys), t->keys, i32(b, 1)), now.ahead);
  attend_copy(t, &q, t->first, t->tokens, t->shape.queries, t->queries, t->shape.query_pitch, scale, false);
  two_float place[SPEC_MAX_AXES];
  const two_float *origin = NULL;
  if (t->places.ptr) {
    origin = find_origin(t, place);
    attend_copy_places(t, PEGEN_PTX_ATTENTION_POSITIONS, t->first, t->tokens, t->shape.queries, t->query_places,
                       origin);
    attend_pair_begin(t);
  }
  ir_value values[IR_MAX_RESULTS], inside[IR_MAX_RESULTS], keys = i32(b, t->shape.keys);
  ir_value tiles = ir_op2(b, "arith.divui", add(b, end_of_keys(t), sub(b, keys, i32(b, 1))), keys);
  int count = flatten(t, &now, n_ahead, values);
  ir_loop loop = ir_for_with(b, i64(b, 0), wide(b, tiles), count, values, inside);
  unflatten(t, &now, n_ahead, inside);
  emit_tile(t, &k, &v, scaled(b, ir_cast(b, "arith.trunci", loop.index, b->i32), t->shape.keys), origin, &now);
  flatten(t, &now, n_ahead, inside);
  ir_end_for_with(b, loop, count, inside, values);
  unflatten(t, &now, n_ahead, values);
  emit_result(t, &now);
}

/* ---- entries ---- */

/* Blocks are tiles of queries, a head's side by side, the last first: with a causal mask they have the most to do. */
static void set_indices(attend *t) {
  ir *b = t->b;
  ir_value queries = i32(b, t->shape.queries), heads = short_parameter(t, PEGEN_PTX_ATTENTION_HEADS);
  t->tokens = short_parameter(t, PEGEN_PTX_ATTENTION_TOKENS);
  t->keys = short_parameter(t, PEGEN_PTX_ATTENTION_KEYS);
  ir_value tiles = ir_op2(b, "arith.divui", add(b, t->tokens, sub(b, queries, i32(b, 1))), queries);
  ir_value row = ir_op2(b, "arith.divui", t->block, tiles), tile = ir_op2(b, "arith.remui", t->block, tiles);
  t->first = mul(b, sub(b, sub(b, tiles, i32(b, 1)), tile), queries);
  t->batch = ir_op2(b, "arith.divui", row, heads);
  t->head = ir_op2(b, "arith.remui", row, heads);
  t->team = ir_op2(b, "arith.divui", t->thread, i32(b, ATTEND_LANES));
  t->lane = ir_op2(b, "arith.remui", t->thread, i32(b, ATTEND_LANES));
}

static void emit(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native, bool host) {
  const attend_design *design = program->plan;
  const attention_plan *p = design->p;
  attend t = {.b = b, .memory = a, .p = p, .entry = entry, .shape = design->shape};
  if (t.shape.rows > MOST_ROWS || t.shape.columns > MOST_ROWS || t.shape.rows * t.shape.quads > MOST_SUMS)
    diag_bug("gpu_attention", "the tile is too large");
  gpu_function f = gpu_open_function(b, a, entry->name, program->attention->n_parameters, entry->blocks, host);
  t.parameter = f.parameter;
  t.block = f.block;
  t.thread = f.thread;
  attend_declare_memory(&t);
  set_indices(&t);
  t.exprs = thread_emitter_create(b, a, p->spec, entry->tile, entry->name);
  t.exprs.operands = f.parameter + PEGEN_PTX_ATTENTION_OPERANDS;
  t.exprs.native = native;
  t.exprs.unit = i32(b, 0);
  t.exprs.head = t.head;
  t.numbers = (row_thread){
      .b = b, .memory = a, .t = entry->tile, .dtype = entry->dtype, .native = native, .parameter = f.parameter};
  emit_walk(&t);
  ir_return(b);
}

static const thread_tile *make_tile(arena *a, const attend_design *d, int element, int access) {
  thread_tile *t = thread_tile_of_blocks(a, expr_pool_blocks(d->p->spec->pool), element, access);
  t->owners = d->shape.queries;
  return t;
}

/* Blocks that a multiprocessor holds: fewer where a thread has much of the output in its registers, and no more is to
 * be had where rows are so long that it has one query. */
static int blocks_of(const attend_shape *s) { return s->rows == 1 ? 1 : s->rows * s->quads > HELD_QUADS ? 2 : 3; }

static void add_entry(arena *a, gpu_program *program, const attend_design *d, int dtype, bool narrow) {
  int element = number_bytes(dtype), access = narrow ? element : THREAD_PIECE;
  const char *name =
      arena_printf(a, "%s_attention_%s%s", program->spec->name, number_name(dtype), narrow ? "_narrow" : "");
  program->entry[program->n_entries++] = (gpu_entry){.name = name,
                                                     .dtype = dtype,
                                                     .access = access,
                                                     .tile = make_tile(a, d, element, access),
                                                     .flight = d->shape.keys,
                                                     .blocks = blocks_of(&d->shape)};
}

static void print_work(FILE *f, const gpu_program *program) {
  const attend_design *design = program->plan;
  const attention_plan *p = design->p;
  fprintf(f, "// attention, head_dim %d, value_dim %d; ", p->head_dim, p->value_dim);
  if (p->columns)
    fprintf(f, "%d terms of a bias, as %d columns beside the products", p->spec->n_blocks, p->columns->n_columns);
  else fprintf(f, "%d operations of a pair beside the products", p->operations);
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
              : ",\n//   inputs of a query, address, type (as of operands) and strides (batch, token, head) each:",
            s->input[i].name);
  fprintf(f, ".\n// Strides are in bytes. Grid: x = ceil(queries / %d) * heads * batches.\n", design->shape.queries);
}

/* NULL after a diag_error: what does not fit, in words. */
static const attend_design *make_design(arena *a, const attention_plan *p) {
  const spec *s = p->spec;
  attend_design *d = arena_new(a, attend_design);
  *d = (attend_design){.p = p, .shape = attend_shape_of(a, p)};
  if (d->shape.rows > 0) return d;
  const char *columns = p->columns ? arena_printf(a, " and %d columns", p->columns->n_columns) : "";
  diag_error(s->file, s->line,
             "kernels of this kind are made for processors only: tiles of %d and %d channels%s do not fit in a GPU's "
             "shared memory; expected smaller head_dim and value_dim%s, or --target x86-64-v3 or the like",
             p->head_dim, p->value_dim, columns, p->columns ? ", a lower degree" : "");
  return NULL;
}

const gpu_program *gpu_attention_program(arena *a, const attention_plan *p, unsigned dtypes) {
  const spec *s = p->spec;
  const attend_design *design = make_design(a, p);
  if (!design) return NULL;
  gpu_program *program = arena_new(a, gpu_program);
  gpu_attention_facts *attention = arena_new(a, gpu_attention_facts);
  *attention =
      (gpu_attention_facts){.n_parameters = PEGEN_PTX_ATTENTION_OPERANDS + s->n_operands * PEGEN_PTX_OPERAND_COUNT +
                                            s->n_inputs * PEGEN_PTX_INPUT_COUNT,
                            .value_dim = p->value_dim,
                            .placed = attention_is_placed(p),
                            .grid_only = p->by_rows,
                            .indexed = p->indexed};
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
    if (p->head_dim % lanes == 0 && p->value_dim % lanes == 0) add_entry(a, program, design, dtype, false);
    add_entry(a, program, design, dtype, true);
  }
  return program;
}
