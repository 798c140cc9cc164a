/* gpu/mma_turn: what a turn of the loop over streamed tiles sets: its tokens, and the shared memory with what their
 * pairs are computed from; see gpu/mma.h. */
#include "gpu/index.h"
#include "gpu/mma.h"

#include "kernel/launch.h"

int64_t mma_place_bytes(const mma *m, bool own) {
  return attend_has_places(m->t->p) || mma_gives_displacements(m)
             ? attend_place_bytes(m->t->p) * mma_side_tokens(m, own)
             : 0;
}

int64_t mma_number_bytes(const mma *m, bool own) {
  return attend_number_bytes(m->t->p, own == m->p->owns_keys, mma_side_tokens(m, own));
}

static ir_value staged(mma *m, ir_value memory, int64_t bytes, bool own, ir_value stage) {
  return own || !memory.ptr ? memory : ir_offset(m->b, memory, wide(m->b, scaled(m->b, stage, bytes)));
}

void mma_set_side(mma *m, bool own, ir_value stage) {
  attend *t = m->t;
  bool of_keys = own == m->p->owns_keys;
  ir_value places = staged(m, m->places_of[own], mma_place_bytes(m, own), own, stage),
           numbers = staged(m, m->numbers_of[own], mma_number_bytes(m, own), own, stage);
  if (of_keys) {
    t->places = places;
    t->key_numbers = numbers;
  } else {
    t->query_places = places;
    t->query_numbers = numbers;
  }
}

/* Coordinates and numbers of a tile's tokens, into shared memory. */
void mma_lay_tokens(mma *m, bool own, ir_value first, ir_value stage) {
  attend *t = m->t;
  bool of_keys = own == m->p->owns_keys;
  int count = mma_side_tokens(m, own);
  ir_value head = t->head;
  if (own && m->few) { /* a thread has a row's, of which token and head are its own */
    mma_query query = mma_query_of(m, t->thread);
    first = sub(m->b, query.token, t->thread);
    t->head = query.head;
  }
  mma_set_side(m, own, stage);
  ir_value places = of_keys ? t->places : t->query_places;
  if (places.ptr)
    attend_copy_places(t, of_keys ? PEGEN_PTX_ATTENTION_KEY_POSITIONS : PEGEN_PTX_ATTENTION_POSITIONS, first, count,
                       places, m->origin);
  attend_lay_numbers_of(t, of_keys, first, count);
  t->head = head;
  if (!own) mma_lay_facts(m, first, stage);
}

void mma_set_turn(mma *m, ir_value index) {
  ir *b = m->b;
  m->stage = rest(b, index, 2);
  m->streamed_first = scaled(b, index, m->shape.tile.streamed);
  mma_set_side(m, true, m->stage);
  mma_set_side(m, false, m->stage);
}

ir_value mma_heads_met(const mma *m) {
  return m->turns_by_head ? i32(m->b, 1) : attend_short_parameter(m->t, PEGEN_PTX_ATTENTION_GROUP);
}

void mma_set_q_head(mma *m, ir_value head) {
  m->q_head = m->t->head = m->t->exprs.head = head;
  if (m->p->owns_keys && mma_number_bytes(m, true)) { /* an input of keys may have a row for each head of q */
    ir_wait(m->b, IR_BARRIER_BLOCK);
    attend_lay_numbers_of(m->t, true, m->own_first, mma_side_tokens(m, true));
    mma_lay_columns_of_head(m);
  }
  if (mma_has_pairs(m)) attend_pair_begin(m->t);
}
