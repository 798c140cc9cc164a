/* Terms against the matrix they were cut from, and vectors against the channels they cover. */
#include "base/number.h"
#include "hand_spec.h"
#include "plan/plan.h"
#include "scoped.h"
#include "test.h"

#include <string.h>

typedef struct fixture {
  arena *memory;
  const spec *spec;
  block_program *program;
  plan *plan;
} fixture;

static fixture build(const hand_request *request, uint64_t *random) {
  fixture f = {.memory = arena_create()};
  f.spec = hand_spec(f.memory, request, random);
  f.program = arena_new(f.memory, block_program);
  assert_true(block_build(f.memory, f.spec, f.program));
  f.plan = plan_build(f.memory, f.program);
  return f;
}

/* Every entry that is not zero belongs to one term and one alone, and so may a 0 where the transposed matrix has none;
 * the terms name nothing else. */
static void assert_terms_are_matrix(const fixture *f) {
  const spec *s = f->spec;
  int n = s->n_components, d = s->head_dim;
  for (int channel = 0; channel < d; channel++) {
    int row = f->plan->component_of[channel], block = f->plan->block_of[channel], taken[SPEC_MAX_BLADES] = {0};
    assert_int_equal(row < 0, block < 0);
    if (row >= 0) assert_int_equal(s->channel[row * s->n_blocks + block], channel);
    for (int term = 0; term < f->plan->n_terms; term++) {
      const expr *coefficient = plan_coefficient(f->plan, term, channel);
      int source = plan_source(f->plan, term, channel);
      assert_int_equal(coefficient == NULL, source < 0);
      if (source < 0) continue;
      int column = f->plan->component_of[source];
      assert_int_equal(f->plan->block_of[source], block); /* nothing leaves its block */
      assert_ptr_equal(coefficient, f->program->matrix.entry[row * n + column]);
      taken[column]++;
    }
    bool identity = true;
    for (int column = 0; row >= 0 && column < n; column++) {
      const expr *entry = f->program->matrix.entry[row * n + column];
      const expr *mirrored = f->program->matrix.entry[column * n + row];
      if (!expr_is_const(entry, 0)) assert_int_equal(taken[column], 1);
      else assert_in_range(taken[column], 0, !expr_is_const(mirrored, 0));
      identity = identity && expr_is_const(entry, row == column);
    }
    assert_int_equal(plan_is_identity(f->plan, channel), identity);
  }
}

static void assert_hoisted(const fixture *f) {
  const plan *p = f->plan;
  assert_true(p->lanes >= f->spec->n_blocks && p->lanes % 4 == 0);
  for (int i = 0; i < p->n_prepared; i++) {
    assert_int_equal(p->prepared_index[p->prepared[i]->id], i);
    assert_true((p->prepared[i]->depends & (DEPENDS_POSITION | DEPENDS_CHANNEL)) == 0);
    assert_true((p->prepared[i]->depends & (DEPENDS_OPERAND | DEPENDS_HEAD)) != 0);
  }
  for (int i = 0; i < p->n_leaves; i++) assert_int_equal(p->leaf_index[p->leaf[i]->id], i);
  bool per_head = false;
  for (int i = 0; i < p->spec->n_components * p->spec->n_components; i++)
    per_head = per_head || (f->program->matrix.entry[i]->depends & DEPENDS_HEAD);
  assert_int_equal(p->per_head, per_head);
}

static bool covers(const plan_tile *t, int vector, int channel) {
  return channel >= t->start[vector] && channel < t->start[vector] + t->width;
}

static void assert_tile(const fixture *f, int width) {
  const plan *p = f->plan;
  int d = f->spec->head_dim;
  const plan_tile *t = plan_tile_build(f->memory, p, width);
  unsigned char *slot_used = arena_alloc(f->memory, (size_t)t->n_slots + 1);
  assert_true(t->width <= width && t->width <= d);
  for (int channel = 0; channel < d; channel++) {
    int found = 0;
    for (int v = 0; v < t->n_vectors; v++) found += covers(t, v, channel);
    assert_true(found >= 1);
  }
  int blocks = 0;
  for (int c = 0; c < t->n_chunks; c++) {
    assert_int_equal(t->chunk_begin[c], blocks);
    assert_true(t->chunk_begin[c] + t->chunk_width[c] <= p->lanes);
    blocks += t->chunk_width[c];
  }
  assert_true(blocks >= f->spec->n_blocks);
  for (int v = 0; v < t->n_vectors; v++) {
    assert_true(t->start[v] >= 0 && t->start[v] + t->width <= d);
    for (int term = 0; term < p->n_terms; term++) {
      int slot = t->slot[term * t->n_vectors + v];
      bool constant = true, absent = true;
      for (int channel = t->start[v]; channel < t->start[v] + t->width; channel++) {
        const expr *x = plan_coefficient(p, term, channel);
        if (!x || plan_is_identity(p, channel)) continue;
        absent = false;
        constant = constant && (x->depends & ~(unsigned)DEPENDS_BLOCK) == 0;
        /* In place, what a lane reads must not have been stored by a vector of another group. */
        int source = plan_source(p, term, channel);
        for (int w = 0; w < t->n_vectors; w++)
          if (covers(t, w, source)) assert_int_equal(t->group[w], t->group[v]);
      }
      assert_int_equal(slot, absent ? PLAN_ABSENT : constant ? PLAN_CONSTANT : slot);
      if (absent || constant) continue;
      assert_true(slot >= 0 && slot < t->n_slots && !slot_used[slot]);
      slot_used[slot] = 1;
    }
  }
  for (int i = 0; i < t->n_slots; i++) assert_int_equal(slot_used[i], 1);
}

/* Pairs: every channel stands in one lane, or as often as without pairs; a lane finds its channel again; what a vector
 * reads is in its group; and of a pair the same is absent. Returns whether there are any. */
static bool assert_pairs(const fixture *f, int width) {
  const plan *p = f->plan;
  const plan_tile *t = plan_tile_build(f->memory, p, width), *paired = plan_tile_in_pairs(f->memory, p, t);
  int *found = arena_array(f->memory, int, f->spec->head_dim), lane = -1;
  if (paired == t) return false;
  assert_null(t->pair);
  for (int v = 0; v < t->n_vectors; v++) {
    int first = paired->pair[v];
    if (first >= 0) assert_true((first == v || first == v - 1) && paired->pair[first] == first);
    for (int term = 0; first >= 0 && term < p->n_terms; term++) {
      const int *slot = t->slot + term * t->n_vectors;
      assert_int_equal(slot[first] == PLAN_ABSENT, slot[first + 1] == PLAN_ABSENT);
    }
    for (int i = 0; i < t->width; i++) {
      int channel = plan_tile_channel(paired, v, i), of_v = plan_tile_vector(paired, channel, v, &lane);
      found[t->start[v] + i]--;
      found[channel]++;
      assert_true(first < 0 || channel % 2 == (t->start[first] + v - first) % 2);
      assert_int_equal(of_v, v);
      assert_int_equal(lane, i);
      for (int term = 0; term < p->n_terms; term++) {
        int source = plan_source(p, term, channel);
        if (source < 0) continue;
        int from = plan_tile_vector(paired, source, v, &lane);
        assert_int_equal(plan_tile_channel(paired, from, lane), source);
        assert_int_equal(paired->group[from], paired->group[v]);
      }
    }
  }
  for (int channel = 0; channel < f->spec->head_dim; channel++) assert_int_equal(found[channel], 0);
  return true;
}

/* One code does for all looped chunks: the same gathering from the same coefficients, slots one chunk after the other.
 */
static int assert_looped(const fixture *f, int width) {
  const plan *p = f->plan;
  const plan_tile *t = plan_tile_build(f->memory, p, width);
  for (int v = 0; v < t->n_vectors; v++) {
    int chunk = t->vector_chunk[v], like = -1, nth = 0, seen = 0;
    if (chunk < 0 || chunk >= t->n_looped) continue;
    for (int w = 0; w < v; w++) nth += t->vector_chunk[w] == chunk;
    for (int w = 0; w < t->n_vectors && like < 0; w++)
      if (t->vector_chunk[w] == 0 && seen++ == nth) like = w;
    assert_true(like >= 0);
    for (int term = 0; term < p->n_terms; term++) {
      int slot = t->slot[term * t->n_vectors + v], first = t->slot[term * t->n_vectors + like];
      assert_int_equal(slot, first < 0 ? first : first + chunk * t->looped_slots);
      for (int lane = 0; lane < t->width; lane++) {
        int here = t->start[v] + lane, there = t->start[like] + lane;
        assert_ptr_equal(plan_coefficient(p, term, here), plan_coefficient(p, term, there));
        if (plan_coefficient(p, term, here)) assert_int_equal(p->block_of[here], p->block_of[there] + chunk * t->width);
      }
    }
  }
  return t->n_looped;
}

/* A row's vectors in a loop: every looped chunk's take channels of the row as chunk 0's do of those `row_step` before,
 * and none of another chunk's. */
static void assert_row_step(const fixture *f, int width, int expected) {
  const plan *p = f->plan;
  const plan_tile *t = plan_tile_looped(f->memory, p, width, 2);
  assert_int_equal(t->row_step, expected);
  for (int v = 0; v < t->n_vectors && t->row_step; v++) {
    int chunk = t->vector_chunk[v], step = chunk * t->row_step;
    if (chunk < 1 || chunk >= t->n_looped) continue;
    for (int w = 0; w < t->n_vectors; w++)
      if (t->group[w] == t->group[v]) assert_int_equal(t->vector_chunk[w], chunk);
    for (int channel = t->start[v]; channel < t->start[v] + t->width; channel++)
      for (int term = 0; term < p->n_terms; term++) {
        int source = plan_source(p, term, channel), first = plan_source(p, term, channel - step);
        assert_int_equal(source, first < 0 ? first : first + step);
      }
  }
}

TEST(chunks_alike_are_looped) {
  uint64_t random = 5;
  for (int leftover = 0; leftover < 2; leftover++)
    for (int n = 2; n <= 3; n++) {
      hand_request request = {{n, 0, 0}, COMBINE_PRODUCT, 2, 41, 1, 2, leftover, true, false, false, 1};
      SCOPED fixture f = build(&request, &random);
      /* 41 blocks: ten whole chunks of 4, five of 8, and the last vector, which starts early, takes from the last
       * of them; a row that a channel shifts has vectors across all chunks. */
      assert_row_step(&f, 4, leftover ? 0 : 4 * n);
      assert_int_equal(assert_looped(&f, 4), leftover ? 0 : 9);
      assert_int_equal(assert_looped(&f, 8), leftover ? 0 : 4);
      assert_int_equal(assert_looped(&f, 16), 0);
    }
}

TEST(plans_of_all_shapes) {
  uint64_t random = 3;
  int n_paired = 0;
  for (int n = 2; n <= 4; n++)
    for (unsigned grades = 2; grades < 1u << (n + 1); grades++)
      for (int blocks = 1; blocks <= 21; blocks += 10)
        for (int variant = 0; variant < 4; variant++) {
          hand_request request = {{n, 0, 0},   COMBINE_PRODUCT, 2,     blocks, 1 + variant % 2, grades, variant,
                                  variant > 1, variant == 3,    false, 1};
          if (n == 4 && blocks > 1 && variant > 0) continue; /* the larger, the slower to build */
          SCOPED fixture f = build(&request, &random);
          assert_terms_are_matrix(&f);
          assert_hoisted(&f);
          for (int width = 4; width <= 16; width *= 2)
            if (f.spec->head_dim >= 4) {
              assert_tile(&f, width);
              n_paired += assert_pairs(&f, width);
            }
        }
  assert_true(n_paired > 0);
}

/* Neighbours that turn in planes stand in one lane of a pair. */
TEST(planes_are_paired) {
  uint64_t random = 5;
  hand_request request = {{2, 0, 0}, COMBINE_PRODUCT, 2, 40, 1, 2, 0, true, false, false, 1};
  SCOPED fixture f = build(&request, &random);
  for (int width = 4; width <= 16; width *= 2) assert_true(assert_pairs(&f, width));
}

/* Vectors of three dimensions: three diagonals. All of Cl(3,0): the same three, grades side by side. */
TEST(diagonals_are_few) {
  uint64_t random = 4;
  static const struct {
    unsigned grades;
    int terms;
  } cases[] = {{2, 3}, {4, 3}, {6, 3}, {15, 3}, {1, 1}};
  for (int i = 0; i < 5; i++) {
    hand_request request = {{3, 0, 0}, COMBINE_PRODUCT, 2, 5, 1, cases[i].grades, 0, true, false, false, 1};
    SCOPED fixture f = build(&request, &random);
    assert_int_equal(f.plan->n_terms, cases[i].terms);
  }
}

int main(void) { return run_listed(); }
