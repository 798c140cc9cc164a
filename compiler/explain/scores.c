/* explain/scores: by the long double reference, stored in float64; see explain/scores.h. */
#include "explain/scores.h"

#include "algebra/blade_facts.h"
#include "algebra/relative.h"
#include "base/diag.h"
#include "base/number.h"
#include "verify/reference.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { DRAWS = 4, MOST_DRAWN = 64 }; /* random queries, and keys, of a head; scores of a displacement, roughly */
static const double WORK = 4e9;   /* operations that matrices may take: heads that are more are left out */
static const uint64_t SEED = 20260101;
const double score_quantile[SCORE_QUANTILES] = {0.05, 0.25, 0.5, 0.75, 0.95};

typedef struct work {
  arena *memory;
  const spec *spec;
  const operand_values *operands;
  score_map *map;
  bool is_relative;
  int width;        /* of a row: channels of blocks, then the others */
  double *matrix;   /* [tokens][blocks][n * n], of one head */
  double *of_keys;  /* the same of keys; matrix itself where they are turned as queries are */
  double *queries;  /* [n_heads][DRAWS][tokens][width], as they are encoded */
  double *keys;
  uint64_t random;
} work;

/* ---- the grid ---- */

static void position_of(const score_map *m, int axes, int64_t token, double *position) {
  for (int axis = axes - 1; axis >= 0; axis--) {
    position[axis] = (double)(token % m->grid[axis]);
    token /= m->grid[axis];
  }
}

static void displacement_of(const score_map *m, int axes, int64_t index, int64_t *delta) {
  for (int axis = axes - 1; axis >= 0; axis--) {
    delta[axis] = index % m->size[axis] - (m->grid[axis] - 1);
    index /= m->size[axis];
  }
}

static void displacement_as_position(const score_map *m, int axes, int64_t index, double *position) {
  int64_t delta[SPEC_MAX_AXES];
  displacement_of(m, axes, index, delta);
  for (int axis = 0; axis < axes; axis++) position[axis] = (double)delta[axis];
}

/* How many pairs of tokens lie `delta` apart, and how far the second one's index is from the first one's. */
static int64_t count_pairs(const score_map *m, int axes, const int64_t *delta, int64_t *offset) {
  int64_t pairs = 1, scale = 1;
  *offset = 0;
  for (int axis = axes - 1; axis >= 0; axis--) {
    pairs *= m->grid[axis] - llabs(delta[axis]);
    *offset += delta[axis] * scale;
    scale *= m->grid[axis];
  }
  return pairs;
}

/* The first token of the pair. */
static int64_t token_of_pair(const score_map *m, int axes, const int64_t *delta, int64_t pair) {
  int64_t found = 0, scale = 1;
  for (int axis = axes - 1; axis >= 0; axis--) {
    int64_t room = m->grid[axis] - llabs(delta[axis]);
    found += (pair % room + (delta[axis] < 0 ? -delta[axis] : 0)) * scale;
    scale *= m->grid[axis];
    pair /= room;
  }
  return found;
}

bool scores_open(const spec *s, const explain_request *request, score_map *m) {
  if (request->n_grid != s->n_axes) {
    diag_error(s->file, s->line, "--grid has %d sizes; the description has %d ax%s", request->n_grid, s->n_axes,
               s->n_axes > 1 ? "es" : "is");
    return false;
  }
  *m = (score_map){.tokens = 1, .count = 1};
  for (int axis = 0; axis < s->n_axes; axis++) {
    m->grid[axis] = request->grid[axis];
    m->size[axis] = 2 * m->grid[axis] - 1;
    m->tokens *= m->grid[axis];
    m->count *= m->size[axis];
    if (m->tokens <= SCORE_MOST_TOKENS) continue;
    diag_error(s->file, s->line, "--grid has more than %d tokens: all their pairs are looked at", SCORE_MOST_TOKENS);
    return false;
  }
  return true;
}

/* Long double operations of the matrices of one token and head, roughly. */
static double work_of_token(const spec *s) {
  enum { STEPS = 40 }; /* of a series, and squarings */
  double n = s->n_components, of_parts = 0;
  for (int i = 0; i < s->n_parts; i++) of_parts += work_of_token(s->part[i].of);
  if (s->n_parts) return of_parts;
  if (s->dense) return s->n_blocks * n * n * n * STEPS;
  return s->n_blocks * s->n_axes * ldexp(STEPS, 2 * (s->algebra.p + s->algebra.q + s->algebra.r));
}

static void choose_heads(arena *a, const spec *s, score_map *m) {
  double all = s->n_components || s->n_parts ? WORK / (work_of_token(s) * (double)m->tokens) : s->heads;
  m->n_heads = all < 1 ? 1 : all < s->heads ? (int)all : s->heads;
  m->head = arena_array(a, int, m->n_heads);
  for (int i = 0; i < m->n_heads; i++) m->head[i] = i * s->heads / m->n_heads;
}

/* ---- rotations ---- */

static int channels_of_blocks(const spec *s) {
  int channels = s->n_blocks * s->n_components;
  for (int i = 0; i < s->n_parts; i++) channels += channels_of_blocks(s->part[i].of);
  return channels;
}

/* Channels in no block: each is the same in a query and in its key. */
static int channels_through(const work *w) { return w->width - channels_of_blocks(w->spec); }

/* The head's matrix is that of its blocks, of a head of several parts theirs, one after the other. */
static int blocks_size(const spec *s) {
  int size = s->n_blocks * s->n_components * s->n_components;
  for (int i = 0; i < s->n_parts; i++) size += blocks_size(s->part[i].of);
  return size;
}

/* of: the description of one side. */
static void make_matrix(const work *w, const spec *s, int head, const double *position, double *matrix) {
  long double block[SPEC_MAX_BLOCK * SPEC_MAX_BLOCK];
  int entries = s->n_components * s->n_components;
  for (int i = 0; i < s->n_parts; i++) {
    double own[SPEC_MAX_AXES];
    reference_place_of_part(&s->part[i], position, own);
    make_matrix(w, s->part[i].of, head, own, matrix);
    matrix += blocks_size(s->part[i].of);
  }
  for (int b = 0; b < s->n_blocks && entries > 0; b++) {
    reference_block(s, position, w->operands->values, head, b, block);
    for (int i = 0; i < entries; i++) matrix[b * entries + i] = (double)block[i];
  }
}

/* The channels of blocks; how many they are. */
static int apply_blocks(const spec *s, const double *matrix, const double *x, double *y) {
  int n = s->n_components, i = 0;
  for (int k = 0; k < s->n_parts; k++) {
    i += apply_blocks(s->part[k].of, matrix, x + i, y + i);
    matrix += blocks_size(s->part[k].of);
  }
  for (int b = 0; b < s->n_blocks && n > 0; b++)
    for (int row = 0; row < n; row++, i++) {
      y[i] = 0;
      for (int c = 0; c < n; c++) y[i] += matrix[(b * n + row) * n + c] * x[b * n + c];
    }
  return i;
}

static void apply(const spec *s, const double *matrix, const double *x, int width, double *y) {
  for (int i = apply_blocks(s, matrix, x, y); i < width; i++) y[i] = x[i];
}

static void draw_row(work *w, double *x) {
  double size = 0;
  for (int i = 0; i < w->width; i++) {
    x[i] = random_normal(&w->random);
    size += x[i] * x[i];
  }
  for (int i = 0; i < w->width; i++) x[i] /= sqrt(size);
}

/* In eight sums, which do not wait for each other: to the same bits, however many a processor adds at once. */
static inline __attribute__((always_inline)) double product_inline(const double *x, const double *y, int64_t count) {
  enum { SUMS = 8 };
  double sum[SUMS] = {0};
  int64_t i = 0;
  for (; i + SUMS <= count; i += SUMS)
    for (int k = 0; k < SUMS; k++) sum[k] += x[i + k] * y[i + k];
  for (; i < count; i++) sum[0] += x[i] * y[i];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static double product_avx2(const double *x, const double *y, int64_t count) {
  return product_inline(x, y, count);
}
#endif

static double product(const double *x, const double *y, int64_t count) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return product_avx2(x, y, count);
#endif
  return product_inline(x, y, count);
}

/* Proved: scores are functions of the displacement, so that one pair of each tells all. */
static bool is_relative(const spec *s) {
  for (int i = 0; i < s->n_parts; i++)
    if (!is_relative(s->part[i].of)) return false;
  if (s->n_parts) return true;
  if (s->dense || s->entries[0] || s->gain[0] || s->function || !s->n_components) return false;
  return blades_commute(s) && rotations_are_relative(s, true, blades_are_orthogonal(s) || s->dual_axes);
}

/* Where a token's displacement from another is counted: places differ as displacements do. */
static int64_t *places_of_tokens(const work *w) {
  const score_map *m = w->map;
  int64_t *place = arena_array(w->memory, int64_t, m->tokens);
  for (int64_t token = 0; token < m->tokens; token++) {
    double position[SPEC_MAX_AXES];
    position_of(m, w->spec->n_axes, token, position);
    for (int axis = 0; axis < w->spec->n_axes; axis++)
      place[token] = place[token] * m->size[axis] + (int64_t)position[axis];
  }
  return place;
}

/* The products of what `size` numbers say of two tokens, and `more`, over `whole`: of one head, all pairs of each
 * displacement. Few queries at a time meet all keys: they stay in the nearest cache. */
static void compare_tokens(const work *w, int index, const double *of_tokens, const double *of_keys, int64_t size,
                           double more, double whole) {
  enum { TOGETHER = 8 };
  score_map *m = w->map;
  const int64_t *place = places_of_tokens(w), middle = m->count / 2;
  double *equal = m->equal + index * m->count, *lowest = m->lowest + index * m->count;
  double *highest = m->highest + index * m->count;
  bool is_symmetric = of_tokens == of_keys; /* the same pairs, from the other token */
  for (int64_t d = 0; d < m->count; d++) lowest[d] = INFINITY, highest[d] = -INFINITY;
  for (int64_t first = 0; first < m->tokens; first += TOGETHER) {
    int64_t end = first + TOGETHER < m->tokens ? first + TOGETHER : m->tokens;
    for (int64_t to = 0; to < (is_symmetric ? end : m->tokens); to++)
      for (int64_t from = is_symmetric && to > first ? to : first; from < end; from++) {
        int64_t d = place[to] - place[from] + middle;
        if (w->is_relative && lowest[d] < INFINITY) continue;
        double score = (product(of_tokens + from * size, of_keys + to * size, size) + more) / whole;
        equal[d] += score;
        if (score < lowest[d]) lowest[d] = score;
        if (score > highest[d]) highest[d] = score;
      }
  }
  for (int64_t d = 0; d < m->count; d++) {
    int64_t delta[SPEC_MAX_AXES], offset, opposite = m->count - 1 - d;
    displacement_of(m, w->spec->n_axes, d, delta);
    if (is_symmetric && opposite < d) {
      equal[d] = equal[opposite];
      lowest[d] = lowest[opposite];
      highest[d] = highest[opposite];
    } else if (!w->is_relative) equal[d] /= (double)count_pairs(m, w->spec->n_axes, delta, &offset);
  }
}

static void encode_draws(work *w, int index) {
  int64_t size = blocks_size(w->spec), tokens = w->map->tokens;
  double *x = arena_array(w->memory, double, 2 * w->width), *y = x + w->width;
  for (int draw = 0; draw < DRAWS; draw++) {
    int64_t row = (index * DRAWS + draw) * tokens;
    draw_row(w, x);
    draw_row(w, y);
    for (int64_t token = 0; token < tokens; token++) {
      apply(w->spec, w->matrix + token * size, x, w->width, w->queries + (row + token) * w->width);
      apply(w->spec, w->of_keys + token * size, y, w->width, w->keys + (row + token) * w->width);
    }
  }
}

/* Moves the numbers of [from, to) until the one at `place` is that of their sorted order, none before it is larger and
 * none behind it is smaller (Hoare's quickselect). */
static void put_in_place(double *values, int64_t from, int64_t to, int64_t place) {
  while (to - from > 1) {
    double pivot = values[from + (to - from) / 2];
    int64_t low = from, high = to - 1;
    while (low <= high) {
      while (values[low] < pivot) low++;
      while (pivot < values[high]) high--;
      if (low > high) break;
      double kept = values[low];
      values[low++] = values[high];
      values[high--] = kept;
    }
    if (place <= high) to = high + 1;
    else if (place >= low) from = low;
    else return;
  }
}

static void set_quantiles(score_map *m, int64_t d, double *values, int64_t count) {
  int64_t sorted = 0; /* places before it are settled */
  for (int i = 0; i < SCORE_QUANTILES; i++) {
    int64_t place = (int64_t)(score_quantile[i] * (double)(count - 1) + 0.5);
    if (place >= sorted) put_in_place(values, sorted, count, place);
    sorted = place + 1;
    m->random[i * m->count + d] = values[place];
  }
}

static void compare_draws(const work *w) {
  score_map *m = w->map;
  int64_t rows = (int64_t)m->n_heads * DRAWS, delta[SPEC_MAX_AXES];
  const int64_t most = rows < MOST_DRAWN ? MOST_DRAWN / rows : 1; /* of a displacement's pairs */
  double *values = arena_array(w->memory, double, rows *most);
  for (int64_t d = 0; d < m->count; d++) {
    int64_t count = 0, offset;
    displacement_of(m, w->spec->n_axes, d, delta);
    int64_t pairs = count_pairs(m, w->spec->n_axes, delta, &offset), taken = pairs < most ? pairs : most;
    if (w->is_relative) taken = 1;
    for (int64_t k = 0; k < taken; k++) { /* evenly over all pairs, where these are more */
      int64_t from = token_of_pair(m, w->spec->n_axes, delta, k * pairs / taken);
      for (int64_t row = 0; row < rows; row++)
        values[count++] = product(w->queries + (row * m->tokens + from) * w->width,
                                  w->keys + (row * m->tokens + from + offset) * w->width, w->width);
    }
    set_quantiles(m, d, values, count);
  }
}

static void measure_tokens(work *w) {
  spec keys = spec_of_side(w->spec, 1);
  score_map *m = w->map;
  int64_t size = blocks_size(w->spec);
  w->is_relative = is_relative(w->spec);
  for (int index = 0; index < m->n_heads; index++) {
    for (int64_t token = 0; token < m->tokens; token++) {
      double position[SPEC_MAX_AXES];
      position_of(m, w->spec->n_axes, token, position);
      make_matrix(w, w->spec, m->head[index], position, w->matrix + token * size);
      if (w->of_keys != w->matrix) make_matrix(w, &keys, m->head[index], position, w->of_keys + token * size);
    }
    /* The mean over queries that are also the keys is the trace of the product of their matrices. */
    compare_tokens(w, index, w->matrix, w->of_keys, size, channels_through(w), w->width);
    encode_draws(w, index);
  }
  compare_draws(w);
}

/* The key alone is turned, by the displacement: a matrix for each. */
static void measure_displacements(work *w) {
  score_map *m = w->map;
  int64_t rows = (int64_t)m->n_heads * DRAWS, width = w->width;
  double *values = arena_array(w->memory, double, rows), *turned = arena_array(w->memory, double, width);
  double *queries = arena_array(w->memory, double, 2 * rows * width), *keys = queries + rows * width;
  for (int64_t row = 0; row < 2 * rows; row++) draw_row(w, queries + row * width);
  for (int64_t d = 0; d < m->count; d++) {
    int64_t count = 0;
    double position[SPEC_MAX_AXES];
    displacement_as_position(m, w->spec->n_axes, d, position);
    for (int index = 0; index < m->n_heads; index++) {
      double trace = channels_through(w);
      int64_t at = index * m->count + d;
      int n = w->spec->n_components;
      make_matrix(w, w->spec, m->head[index], position, w->matrix);
      for (int i = 0; i < w->spec->n_blocks * n; i++) trace += w->matrix[i * n + i % n];
      m->equal[at] = m->lowest[at] = m->highest[at] = trace / w->width;
      for (int draw = 0; draw < DRAWS; draw++) {
        apply(w->spec, w->matrix, keys + count * width, width, turned);
        values[count] = product(queries + count * width, turned, width);
        count++;
      }
    }
    set_quantiles(m, d, values, count);
  }
}

static void add_equal(work *w) {
  score_map *m = w->map;
  int64_t numbers = m->n_heads * m->count;
  m->equal = arena_array(w->memory, double, 3 * numbers);
  m->lowest = m->equal + numbers;
  m->highest = m->lowest + numbers;
}

static void measure_turns(work *w) {
  score_map *m = w->map;
  int64_t rows = (int64_t)m->n_heads * DRAWS * m->tokens * w->width;
  bool of_pairs = w->spec->pairwise != NULL;
  m->meaning = of_pairs ? "a query and the same as a key that is turned by its displacement"
                        : "a query and the same as a key, each turned by its position";
  add_equal(w);
  m->random = arena_array(w->memory, double, SCORE_QUANTILES * m->count);
  int64_t numbers = (of_pairs ? 1 : m->tokens) * blocks_size(w->spec);
  w->matrix = w->of_keys = arena_array(w->memory, double, numbers);
  if (spec_has_sides(w->spec)) w->of_keys = arena_array(w->memory, double, numbers);
  if (of_pairs) {
    measure_displacements(w);
    return;
  }
  w->queries = arena_array(w->memory, double, 2 * rows);
  w->keys = w->queries + rows;
  measure_tokens(w);
}

/* ---- what is added, to rows and to scores ---- */

static void measure_sums(work *w) {
  score_map *m = w->map;
  const spec *s = w->spec;
  double *added = arena_array(w->memory, double, m->tokens * s->head_dim);
  m->meaning = "the cosine of what is added at two positions";
  add_equal(w);
  for (int index = 0; index < m->n_heads; index++) {
    for (int64_t token = 0; token < m->tokens; token++) {
      double position[SPEC_MAX_AXES], *row = added + token * s->head_dim;
      position_of(m, s->n_axes, token, position);
      for (int c = 0; c < s->head_dim; c++)
        row[c] = (double)reference_sum(s, position, w->operands->values, m->head[index], c);
      double size = sqrt(product(row, row, s->head_dim));
      for (int c = 0; c < s->head_dim && size > 0; c++) row[c] /= size;
    }
    compare_tokens(w, index, added, added, s->head_dim, 0, 1);
  }
}

/* A token's inputs. */
static const double *const *draw_inputs(work *w) {
  const spec *s = w->spec;
  double **rows = arena_array(w->memory, double *, s->n_inputs + 1);
  for (int i = 0; i < s->n_inputs; i++) {
    int64_t size = spec_input_numbers(&s->input[i]);
    rows[i] = arena_array(w->memory, double, size);
    for (int64_t c = 0; c < size; c++)
      rows[i][c] = random_uniform(&w->random, -s->input[i].test_scale, s->input[i].test_scale);
  }
  return (const double *const *)rows;
}

static void measure_biases(work *w) {
  score_map *m = w->map;
  const spec *s = w->spec;
  const double *const *inputs = draw_inputs(w);
  m->bias = arena_array(w->memory, double, m->n_heads * m->count);
  for (int64_t d = 0; d < m->count; d++) {
    double position[SPEC_MAX_AXES];
    displacement_as_position(m, s->n_axes, d, position);
    for (int index = 0; index < m->n_heads; index++) {
      expr_environment env = {.head = m->head[index],
                              .blocks = expr_pool_blocks(s->pool),
                              .positions = position,
                              .operands = w->operands->values,
                              .inputs = inputs};
      m->bias[index * m->count + d] =
          s->polynomial ? (double)reference_bias(s, position, w->operands->values, inputs, m->head[index])
                        : (double)expr_eval_long(s->pairwise->bias, &env);
    }
  }
}

void scores_measure(arena *a, const spec *s, const operand_values *operands, score_map *out) {
  choose_heads(a, s, out);
  work w = {.memory = a, .spec = s, .operands = operands, .map = out, .width = s->head_dim, .random = SEED};
  if (s->additive) measure_sums(&w);
  else if ((s->n_components || s->n_parts) && !s->polynomial) measure_turns(&w);
  if (s->polynomial || (s->pairwise && s->pairwise->bias)) measure_biases(&w);
}
