/* plan/pairs: vectors of a row two and two, whose channels take turns; see plan/plan.h. */
#include "plan/plan.h"

#include <string.h>

/* Instructions that a pair may need more to bring channels together, for it has six less of conversion. */
enum { WORTH_OF_PAIR = 4 };

enum { MOST_LANES = 64 };

int plan_tile_channel(const plan_tile *t, int vector, int lane) {
  int first = t->pair ? t->pair[vector] : -1;
  return first < 0 ? t->start[vector] + lane : t->start[first] + 2 * lane + vector - first;
}

int plan_tile_vector(const plan_tile *t, int channel, int asking, int *lane) {
  int j = (channel - t->start[0]) / t->width;
  if (channel >= t->start[asking] && channel < t->start[asking] + t->width) j = asking;
  else if (j > t->n_vectors - 1) j = t->n_vectors - 1;
  int first = t->pair ? t->pair[j] : -1, from = t->start[first < 0 ? j : first];
  *lane = first < 0 ? channel - from : (channel - from) / 2;
  return first < 0 ? j : first + (channel - from) % 2;
}

/* ---- which vectors are pairs ---- */

static bool passes_through(const plan *p, const plan_tile *t, int vector) {
  for (int lane = 0; lane < t->width; lane++)
    if (!plan_is_identity(p, t->start[vector] + lane)) return false;
  return true;
}

/* Neighbours of which the same is to be done: a lane gets no product that it had not, nor a store. They begin at a
 * multiple of both, for stores past the caches must be aligned to what they store. */
static bool may_pair(const plan *p, const plan_tile *t, int first) {
  int second = first + 1;
  if ((t->start[first] - t->start[0]) % (2 * t->width) != 0) return false;
  if (second >= t->n_vectors || t->start[second] != t->start[first] + t->width) return false;
  if (passes_through(p, t, first) != passes_through(p, t, second)) return false;
  for (int k = 0; k < p->n_terms; k++) {
    const int *slot = t->slot + k * t->n_vectors;
    if ((slot[first] == PLAN_ABSENT) != (slot[second] == PLAN_ABSENT)) return false;
  }
  return true;
}

int plan_moves(const plan *p, const plan_tile *t, int term, int vector) {
  bool in_place = true;
  int sources = 0, lane, source_of[MOST_LANES];
  if (t->slot[term * t->n_vectors + vector] == PLAN_ABSENT) return 0;
  for (int i = 0; i < t->width; i++) {
    int channel = plan_tile_channel(t, vector, i), source = plan_source(p, term, channel);
    if (source < 0 || plan_is_identity(p, channel)) continue;
    int from = plan_tile_vector(t, source, vector, &lane), known = 0;
    in_place = in_place && lane == i;
    while (known < sources && source_of[known] != from) known++;
    if (known == sources) source_of[sources++] = from;
  }
  return sources > 1 ? sources - 1 : sources == 1 && !in_place;
}

static int count_moves(const plan *p, const plan_tile *t) {
  int count = 0;
  for (int k = 0; k < p->n_terms; k++)
    for (int j = 0; j < t->n_vectors; j++) count += plan_moves(p, t, k, j);
  return count;
}

static void join_group(plan_tile *t, int keep, int drop) {
  for (int j = 0; j < t->n_vectors; j++)
    if (t->group[j] == drop) t->group[j] = keep;
}

/* A group is named by its first vector, where it is begun. */
static void join_pair(plan_tile *t, int first) {
  int x = t->group[first], y = t->group[first + 1];
  t->pair[first] = t->pair[first + 1] = first;
  join_group(t, x < y ? x : y, x < y ? y : x);
}

const plan_tile *plan_tile_in_pairs(arena *a, const plan *p, const plan_tile *t) {
  plan_tile *paired = arena_new(a, plan_tile);
  int count = 0;
  *paired = *t;
  paired->group = arena_array(a, int, t->n_vectors);
  paired->pair = arena_array(a, int, t->n_vectors);
  memcpy(paired->group, t->group, (size_t)t->n_vectors * sizeof *t->group);
  for (int j = 0; j < t->n_vectors; j++) paired->pair[j] = -1;
  for (int j = 0; j + 1 < t->n_vectors; j++) {
    if (!may_pair(p, t, j)) continue;
    join_pair(paired, j++);
    count++;
  }
  return count > 0 && count_moves(p, paired) <= count_moves(p, t) + WORTH_OF_PAIR * count ? paired : t;
}
