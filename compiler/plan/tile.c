/* plan/tile: rows of channels and blocks cut into vectors; see plan/plan.h. */
#include "plan/plan.h"

static void join(int *group, int count, int x, int y) {
  int keep = group[x], drop = group[y];
  for (int i = 0; i < count; i++)
    if (group[i] == drop) group[i] = keep;
}

static void group_vectors(const plan *p, plan_tile *t) {
  for (int j = 0; j < t->n_vectors; j++) t->group[j] = j;
  for (int j = 0; j < t->n_vectors; j++)
    for (int lane = 0; lane < t->width; lane++) {
      int channel = t->start[j] + lane;
      for (int i = 0; i < t->n_vectors; i++)
        if (i != j && channel >= t->start[i] && channel < t->start[i] + t->width) join(t->group, t->n_vectors, i, j);
      for (int k = 0; k < p->n_terms; k++) {
        int source = plan_source(p, k, channel);
        for (int i = 0; source >= 0 && i < t->n_vectors; i++)
          if (source >= t->start[i] && source < t->start[i] + t->width && t->group[i] != t->group[j])
            join(t->group, t->n_vectors, i, j);
      }
    }
}

/* Whether a vector's coefficients in a term are absent, constants, or computed per token. */
static int slot_kind(const plan *p, int term, int start, int width) {
  bool absent = true, constant = true;
  for (int lane = 0; lane < width; lane++) {
    const expr *x = plan_coefficient(p, term, start + lane);
    if (!x || expr_is_const(x, 0) || plan_is_identity(p, start + lane)) continue;
    absent = false;
    constant = constant && expr_is_fixed_for_heads(x);
  }
  return absent ? PLAN_ABSENT : constant ? PLAN_CONSTANT : 0;
}

/* ---- chunks ---- */

static void cut_blocks(arena *a, const plan *p, plan_tile *t) {
  t->chunk_begin = arena_array(a, int, p->lanes);
  t->chunk_width = arena_array(a, int, p->lanes);
  for (int begin = 0; begin < p->spec->n_blocks;) {
    int left = p->spec->n_blocks - begin;
    int chunk = left >= t->width ? t->width : plan_chunk_width(left);
    if (chunk > t->width) chunk = t->width;
    t->chunk_begin[t->n_chunks] = begin;
    t->chunk_width[t->n_chunks++] = chunk;
    begin += chunk;
  }
}

static bool has_slots(const plan_tile *t, int n_terms, int vector) {
  for (int k = 0; k < n_terms; k++)
    if (t->slot[k * t->n_vectors + vector] >= 0) return true;
  return false;
}

/* Whether the coefficients of vector w of chunk c are gathered as those of vector v of chunk 0 are. */
static bool gathered_alike(const plan *p, const plan_tile *t, int v, int w, int c) {
  for (int lane = 0; lane < t->width; lane++) {
    int x = t->start[v] + lane, y = t->start[w] + lane;
    if (p->component_of[x] != p->component_of[y]) return false;
    if (p->component_of[x] >= 0 && p->block_of[x] != p->block_of[y] - t->chunk_begin[c]) return false;
    for (int k = 0; k < p->n_terms; k++) {
      const expr *coefficient = plan_coefficient(p, k, x);
      if (coefficient && coefficient->op == EXPR_TABLE && expr_is_fixed_for_heads(coefficient)) return false;
    }
  }
  return true;
}

/* Whether chunk c's vectors match chunk 0's one to one, and none is shared with another chunk. */
static bool chunk_like_first(const plan *p, const plan_tile *t, int c) {
  int v = -1, w = -1;
  for (int j = 0; j < t->n_vectors; j++)
    for (int lane = 0; lane < t->width && t->vector_chunk[j] != c; lane++) {
      int block = p->block_of[t->start[j] + lane] - t->chunk_begin[c];
      if (block >= 0 && block < t->chunk_width[c] && p->component_of[t->start[j] + lane] >= 0 &&
          has_slots(t, p->n_terms, j))
        return false;
    }
  for (;;) {
    do v++;
    while (v < t->n_vectors && t->vector_chunk[v] != 0);
    do w++;
    while (w < t->n_vectors && t->vector_chunk[w] != c);
    if (v == t->n_vectors || w == t->n_vectors) return v == w;
    if (!gathered_alike(p, t, v, w, c)) return false;
  }
}

/* Whether what blocks read of inputs moves on with them: code of a loop has one address for all chunks. */
static bool inputs_are_in_order(arena *a, const spec *s) {
  int count = expr_pool_count(s->pool), blocks = expr_pool_blocks(s->pool);
  const expr **nodes = arena_array(a, const expr *, count + 1);
  expr_pool_nodes(s->pool, nodes);
  for (int i = 0; i < count; i++)
    for (int block = 0; nodes[i]->op == EXPR_INPUT && nodes[i]->depends & DEPENDS_BLOCK && block < blocks; block++)
      if (nodes[i]->offsets[block] != nodes[i]->offsets[0] + block) return false;
  return true;
}

static int count_looped(arena *a, const plan *p, plan_tile *t, int least) {
  t->vector_chunk = arena_array(a, int, t->n_vectors);
  for (int j = 0; j < t->n_vectors; j++) {
    int first = -1, last = -1;
    for (int lane = 0; lane < t->width; lane++) {
      int block = p->block_of[t->start[j] + lane], chunk = 0;
      if (block < 0) continue;
      while (block >= t->chunk_begin[chunk] + t->chunk_width[chunk]) chunk++;
      if (first < 0) first = chunk;
      if (chunk != first) first = t->n_chunks;
      last = chunk;
    }
    t->vector_chunk[j] = first == last ? first : -1;
  }
  int count = 0;
  while (count < t->n_chunks && t->chunk_width[count] == t->width && chunk_like_first(p, t, count)) count++;
  return count < least || !inputs_are_in_order(a, p->spec) ? 0 : count;
}

/* Numbers the slots of the vectors that belong to a chunk, or (chunk < 0) to none of the looped ones. */
static void number_slots(const plan *p, plan_tile *t, int chunk) {
  for (int j = 0; j < t->n_vectors; j++) {
    bool looped = t->vector_chunk[j] >= 0 && t->vector_chunk[j] < t->n_looped;
    if (chunk >= 0 ? t->vector_chunk[j] != chunk : looped) continue;
    for (int k = 0; k < p->n_terms; k++)
      if (t->slot[k * t->n_vectors + j] >= 0) t->slot[k * t->n_vectors + j] = t->n_slots++;
  }
}

/* ---- rows by chunks ---- */

static bool group_is_of_chunk(const plan_tile *t, int vector, int chunk) {
  for (int j = 0; j < t->n_vectors; j++)
    if (t->group[j] == t->group[vector] && t->vector_chunk[j] != chunk) return false;
  return true;
}

/* Whether vector w of looped chunk c is made of its channels as v of chunk 0 is of those `step` before. */
static bool made_alike(const plan *p, const plan_tile *t, int v, int w, int c, int step) {
  if (t->start[w] != t->start[v] + step) return false;
  for (int k = 0; k < p->n_terms; k++) {
    int of_v = t->slot[k * t->n_vectors + v], of_w = t->slot[k * t->n_vectors + w];
    if (of_w != (of_v < 0 ? of_v : of_v + c * t->looped_slots)) return false;
    for (int lane = 0; lane < t->width; lane++) {
      int x = plan_source(p, k, t->start[v] + lane), y = plan_source(p, k, t->start[w] + lane);
      if (y != (x < 0 ? x : x + step)) return false;
      if (plan_is_identity(p, t->start[v] + lane) != plan_is_identity(p, t->start[w] + lane)) return false;
    }
  }
  return group_is_of_chunk(t, v, 0) && group_is_of_chunk(t, w, c);
}

static int next_of_chunk(const plan_tile *t, int vector, int chunk) {
  do vector++;
  while (vector < t->n_vectors && t->vector_chunk[vector] != chunk);
  return vector;
}

static int find_row_step(const plan *p, const plan_tile *t) {
  if (t->n_looped < 2) return 0;
  int step = t->start[next_of_chunk(t, -1, 1)] - t->start[next_of_chunk(t, -1, 0)];
  for (int c = 1; c < t->n_looped; c++) {
    int v = next_of_chunk(t, -1, 0), w = next_of_chunk(t, -1, c);
    for (; v < t->n_vectors && w < t->n_vectors; v = next_of_chunk(t, v, 0), w = next_of_chunk(t, w, c))
      if (!made_alike(p, t, v, w, c, c * step)) return 0;
  }
  return step;
}

/* ---- the whole ---- */

plan_tile *plan_tile_build(arena *a, const plan *p, int width) {
  return plan_tile_looped(a, p, width, PLAN_LEAST_LOOPED);
}

plan_tile *plan_tile_looped(arena *a, const plan *p, int width, int least) {
  int d = p->end - p->begin;
  while (width > d) width /= 2;
  plan_tile *t = arena_new(a, plan_tile);
  t->width = width;
  t->n_vectors = (d + width - 1) / width;
  t->start = arena_array(a, int, t->n_vectors);
  t->group = arena_array(a, int, t->n_vectors);
  for (int j = 0; j < t->n_vectors; j++) t->start[j] = p->begin + ((j + 1) * width <= d ? j * width : d - width);
  group_vectors(p, t);

  cut_blocks(a, p, t);

  t->slot = arena_array(a, int, p->n_terms * t->n_vectors);
  for (int k = 0; k < p->n_terms; k++)
    for (int j = 0; j < t->n_vectors; j++) t->slot[k * t->n_vectors + j] = slot_kind(p, k, t->start[j], width);
  t->n_looped = count_looped(a, p, t, least);
  for (int chunk = 0; chunk < t->n_looped; chunk++) number_slots(p, t, chunk);
  t->looped_slots = t->n_looped ? t->n_slots / t->n_looped : 0;
  number_slots(p, t, -1);
  t->row_step = find_row_step(p, t);
  return t;
}
