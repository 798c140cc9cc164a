/* interpret/tile: see interpret/tile.h. Every streamed tile is walked: what is masked is told by scores. */
#include "interpret/tile.h"

#include <math.h>
#include <string.h>

enum { MOST_STAGES = 2 };

typedef struct machine {
  arena *memory;
  const tile_program *p;
  tile_call *call;
  int64_t own_first, streamed_first;
  int64_t turn;
  long double *tile[TILE_MOST_VALUES][MOST_STAGES]; /* what ops read */
  long double *coming[TILE_MOST_VALUES][MOST_STAGES]; /* what a load brings, up to the wait */
  bool is_coming[TILE_MOST_VALUES][MOST_STAGES];
  long double *maximum, *total; /* [own] */
  bool has_total;
} machine;

static int rows_of(const machine *m, int value) { return tile_size(&m->call->shape, m->p->value[value].rows); }
static int columns_of(const machine *m, int value) { return tile_size(&m->call->shape, m->p->value[value].columns); }

static int stage_of(const machine *m, int value, int64_t turn) {
  return m->p->value[value].rows == TILE_STREAMED && !m->p->value[value].is_sum
             ? (int)(turn % m->p->value[value].stages)
             : 0;
}

static long double *tile_of(const machine *m, int value) { return m->tile[value][stage_of(m, value, m->turn)]; }

static int64_t tokens_of(const machine *m, bool own) {
  return own == m->p->owns_keys ? m->call->keys : m->call->queries;
}

/* Query and key of a pair [row, column] of an [own, streamed] value; false: one of them is behind the last. */
static bool pair_of(const machine *m, int row, int column, int64_t *query, int64_t *key) {
  int64_t own = m->own_first + row, streamed = m->streamed_first + column;
  *query = m->p->owns_keys ? streamed : own;
  *key = m->p->owns_keys ? own : streamed;
  return *query < m->call->queries && *key < m->call->keys;
}

static void load(machine *m, const tile_op *op) {
  bool own = m->p->value[op->value].rows == TILE_OWN;
  int rows = rows_of(m, op->value), width = columns_of(m, op->value);
  int stage = stage_of(m, op->value, m->turn + op->ahead);
  int64_t first = own ? m->own_first : m->streamed_first + (op->ahead ? rows : 0);
  for (int i = 0; i < rows * width; i++) {
    int64_t row = first + i / width;
    bool given = row < tokens_of(m, own);
    m->coming[op->value][stage][i] = given ? m->call->in[op->tensor][row * width + i % width] : 0;
    m->tile[op->value][stage][i] = NAN;
  }
  m->is_coming[op->value][stage] = true;
}

static void wait(machine *m) {
  for (int v = 0; v < m->p->n_values; v++)
    for (int stage = 0; stage < MOST_STAGES; stage++) {
      if (!m->is_coming[v][stage]) continue;
      memcpy(m->tile[v][stage], m->coming[v][stage], sizeof(long double) * (size_t)(rows_of(m, v) * columns_of(m, v)));
      m->is_coming[v][stage] = false;
    }
}

/* A weight of 0 adds nothing, even where the row is not finite. */
static long double weighted(long double weight, long double x) { return weight == 0 ? 0 : weight * x; }

static void multiply(machine *m, const tile_op *op) {
  const long double *a = tile_of(m, op->arg[0]), *b = tile_of(m, op->arg[1]);
  long double *to = tile_of(m, op->value);
  int rows = rows_of(m, op->value), columns = columns_of(m, op->value), inner = columns_of(m, op->arg[0]);
  bool by_weights = m->p->value[op->arg[0]].is_sum;
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) {
      long double sum = op->adds ? to[i * columns + j] : 0;
      for (int k = 0; k < inner; k++) {
        long double y = op->transposed ? b[j * inner + k] : b[k * columns + j];
        sum += by_weights ? weighted(a[i * inner + k], y) : a[i * inner + k] * y;
      }
      to[i * columns + j] = sum;
    }
}

/* Each pair of an [own, streamed] value by one function. */
typedef long double pair_function(machine *m, const tile_op *op, int i, int64_t query, int64_t key);

static void each_pair(machine *m, const tile_op *op, pair_function *f, long double outside) {
  long double *to = tile_of(m, op->value);
  int rows = rows_of(m, op->value), columns = columns_of(m, op->value);
  for (int i = 0; i < rows * columns; i++) {
    int64_t query, key;
    to[i] = pair_of(m, i / columns, i % columns, &query, &key) ? f(m, op, i, query, key) : outside;
  }
}

static long double score(machine *m, const tile_op *op, int i, int64_t query, int64_t key) {
  return m->call->score(m->call->context, tile_of(m, op->arg[0])[i], query, key);
}

static long double weight(machine *m, const tile_op *op, int i, int64_t query, int64_t key) {
  (void)key;
  long double lse = m->call->lse[query], x = tile_of(m, op->arg[0])[i];
  return isinf(lse) && lse < 0 ? 0 : expl(x - lse);
}

/* What a score gains of arguments of a gain or a give. */
static long double score_gain(machine *m, const tile_op *op, int i, int64_t query) {
  long double p = tile_of(m, op->arg[0])[i], dp = tile_of(m, op->arg[1])[i];
  return p == 0 ? 0 : p * (dp - m->call->delta[query]);
}

static long double gain(machine *m, const tile_op *op, int i, int64_t query, int64_t key) {
  long double gained = score_gain(m, op, i, query), product = tile_of(m, op->arg[2])[i];
  return gained == 0 ? 0 : gained * m->call->derivative(m->call->context, product, query, key);
}

static void give(machine *m, const tile_op *op) {
  const long double *product = tile_of(m, op->arg[2]);
  int columns = columns_of(m, op->arg[0]);
  for (int i = 0; i < rows_of(m, op->arg[0]) * columns; i++) {
    int64_t query, key;
    if (!pair_of(m, i / columns, i % columns, &query, &key)) continue;
    long double gained = score_gain(m, op, i, query);
    if (gained != 0) m->call->give(m->call->context, op->to, gained, product[i], query, key);
  }
}

static void online(machine *m, const tile_op *op) {
  const long double *x = tile_of(m, op->arg[0]);
  long double *to = tile_of(m, op->value), *out = tile_of(m, op->arg[1]);
  int columns = columns_of(m, op->value), width = columns_of(m, op->arg[1]);
  m->has_total = true;
  for (int i = 0; i < rows_of(m, op->value); i++) {
    long double maximum = m->maximum[i];
    for (int j = 0; j < columns; j++) maximum = fmaxl(maximum, x[i * columns + j]);
    bool none = isinf(maximum) && maximum < 0;
    long double decay = none ? 1 : expl(m->maximum[i] - maximum);
    m->maximum[i] = maximum;
    m->total[i] *= decay;
    for (int c = 0; c < width; c++) out[i * width + c] *= decay;
    for (int j = 0; j < columns; j++) {
      bool hidden = isinf(x[i * columns + j]) && x[i * columns + j] < 0; /* a score that is no number is not */
      to[i * columns + j] = hidden ? 0 : expl(x[i * columns + j] - maximum);
      m->total[i] += to[i * columns + j];
    }
  }
}

static void turn(machine *m, const tile_op *op) {
  const tile_value *v = &m->p->value[op->value];
  bool own = v->rows == TILE_OWN;
  int width = columns_of(m, op->value), stage = stage_of(m, op->value, m->turn);
  const long double *from = tile_of(m, op->arg[0]);
  long double *to = (v->is_sum ? m->tile : m->coming)[op->value][stage];
  for (int i = 0; i < rows_of(m, op->value); i++) {
    int64_t token = (own ? m->own_first : m->streamed_first) + i;
    for (int c = 0; c < width; c++) to[i * width + c] = 0;
    if (token < tokens_of(m, own))
      m->call->turn(m->call->context, own == m->p->owns_keys, token, op->back, width, from + i * width, to + i * width);
  }
  m->is_coming[op->value][stage] = !v->is_sum;
}

/* What the rotation of a pair changes of its streamed row, `width` numbers of `by`: [own row, streamed row]. */
static void find_change(const machine *m, const tile_op *op, int i, int j, int width, long double *by) {
  const long double *row = tile_of(m, op->arg[1]) + j * width;
  int64_t query, key;
  for (int c = 0; c < width; c++) by[c] = 0;
  if (!pair_of(m, i, j, &query, &key)) return;
  m->call->rotate(m->call->context, query, key, m->p->owns_keys, width, row, by);
  for (int c = 0; c < width; c++) by[c] -= row[c];
}

/* A product's sum, or rows of a sum, of what rotations change. */
static void rotate(machine *m, const tile_op *op) {
  bool sums = op->kind == TILE_ROTATED_SUM;
  const long double *a = tile_of(m, op->arg[0]);
  long double *to = tile_of(m, op->value);
  int width = columns_of(m, op->arg[1]), rows = rows_of(m, op->value), streamed = rows_of(m, op->arg[1]);
  long double *by = arena_array(m->memory, long double, width);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < streamed; j++) {
      find_change(m, op, i, j, width, by);
      for (int c = 0; c < width; c++)
        if (sums) to[i * width + c] += weighted(a[i * streamed + j], by[c]);
        else to[i * streamed + j] += a[i * width + c] * by[c];
    }
}

static void store(machine *m, const tile_op *op) {
  const long double *x = tile_of(m, op->arg[0]);
  int width = columns_of(m, op->arg[0]);
  for (int i = 0; i < rows_of(m, op->arg[0]); i++) {
    int64_t token = m->own_first + i;
    if (token >= tokens_of(m, true)) return;
    long double by = op->scales ? m->call->scale : 1;
    if (m->has_total) by = m->total[i] == 0 ? 0 : 1 / m->total[i];
    for (int c = 0; c < width; c++) m->call->out[op->tensor][token * width + c] = by * x[i * width + c];
    if (m->has_total && m->call->lse) m->call->lse[token] = m->maximum[i] + logl(m->total[i]);
  }
}

static void run(machine *m, const tile_op *op) {
  switch (op->kind) {
  case TILE_LOAD: load(m, op); break;
  case TILE_WAIT: wait(m); break;
  case TILE_MMA: multiply(m, op); break;
  case TILE_ROTATED_PRODUCT:
  case TILE_ROTATED_SUM: rotate(m, op); break;
  case TILE_SCORE: each_pair(m, op, score, -INFINITY); break;
  case TILE_ONLINE: online(m, op); break;
  case TILE_WEIGHT: each_pair(m, op, weight, 0); break;
  case TILE_GAIN: each_pair(m, op, gain, 0); break;
  case TILE_GIVE: give(m, op); break;
  case TILE_TURN: turn(m, op); break;
  case TILE_STORE: store(m, op); break;
  default: break;
  }
}

static bool sinks(const machine *m, bool gives) {
  for (int i = 0; i < m->p->n_ops; i++)
    if (gives ? m->p->op[i].to & TILE_OF_SINK : m->p->op[i].sinks) return true;
  return false;
}

/* Own queries have its score, whose value is 0. */
static void give_sink(machine *m) {
  for (int64_t i = m->own_first; i < m->own_first + m->call->shape.own && i < m->call->queries; i++)
    m->call->give_sink(m->call->context, -expl(m->call->sink - m->call->lse[i]) * m->call->delta[i]);
}

static void run_tile(machine *m) {
  int begin = 0;
  int64_t turns = (tokens_of(m, false) + m->call->shape.streamed - 1) / m->call->shape.streamed;
  m->turn = m->streamed_first = 0;
  m->has_total = false;
  for (int i = 0; i < m->call->shape.own; i++) {
    m->maximum[i] = sinks(m, false) ? m->call->sink : -INFINITY;
    m->total[i] = sinks(m, false);
  }
  for (int v = 0; v < m->p->n_values; v++)
    for (int i = 0; m->p->value[v].is_sum && i < rows_of(m, v) * columns_of(m, v); i++) m->tile[v][0][i] = 0;
  for (int i = 0; i < m->p->n_ops; i++) {
    const tile_op *op = &m->p->op[i];
    run(m, op);
    if (op->kind == TILE_EACH) begin = i;
    if (op->kind != TILE_END || ++m->turn == turns) continue;
    m->streamed_first = m->turn * m->call->shape.streamed;
    i = begin;
  }
  if (sinks(m, true)) give_sink(m);
}

void tile_interpret(arena *a, const tile_program *p, tile_call *call) {
  machine m = {.memory = a, .p = p, .call = call};
  for (int v = 0; v < p->n_values; v++)
    for (int stage = 0; stage < (p->value[v].is_sum ? 1 : p->value[v].stages); stage++) {
      int count = rows_of(&m, v) * columns_of(&m, v);
      m.tile[v][stage] = arena_array(a, long double, count);
      m.coming[v][stage] = arena_array(a, long double, count);
    }
  m.maximum = arena_array(a, long double, call->shape.own);
  m.total = arena_array(a, long double, call->shape.own);
  for (m.own_first = 0; m.own_first < tokens_of(&m, true); m.own_first += call->shape.own) run_tile(&m);
}
