/* gpu/attention_gives: what operands, coordinates and inputs gain of pairs; see gpu/attention_backward.h and
 * gpu/give.h.
 *
 * A displacement is the key's coordinate less the query's. Rows are queries in one entry and keys in the other, so that
 * either adds only to what is its own.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"

#include "kernel/launch.h"

static const double LN_2 = 0.69314718055994530942;

enum { MOST_KEPT = 2 /* shared memory is scarce */, TEAMS_OF_WARP = PEGEN_PTX_BLOCK / ATTEND_WARPS / ATTEND_LANES };

unsigned attend_gaining_of_pairs(const attention_plan *p) {
  unsigned bits = 0, turning = attend_turning_operands(p);
  if (p->columns) return 0;
  for (int i = 0; i < p->n_scatters; i++) bits |= 1u << p->scatter[i].leaf->index;
  for (int i = 0; p->torques && i < p->torques->n_scatters; i++) bits |= 1u << p->torques->scatter[i].leaf->index;
  for (int i = 0; p->torques && i < p->torques->n_scatters; i++) /* of an operand all or nothing */
    if (!(turning >> p->torques->scatter[i].leaf->index & 1)) bits &= ~(1u << p->torques->scatter[i].leaf->index);
  return bits;
}

static int kept_of(const attention_plan *p) {
  int count = attend_gaining_of_pairs(p) ? attend_give_single(p) : 0;
  return count < MOST_KEPT ? count : MOST_KEPT;
}

int64_t attend_gives_bytes(const attend_gradient_shape *s, const attention_plan *p) {
  bool gives = attend_gaining_of_pairs(p) || attend_gives_places(s, p) || s->weighs;
  return gives ? attend_give_bytes(kept_of(p)) : 0;
}

bool attend_gives_places(const attend_gradient_shape *s, const attention_plan *p) {
  return p->n_sums > 0 && (!attend_has_columns(p) || s->moves);
}

static bool gives_places(const attend_gradient *g) { return attend_gives_places(&g->shape, g->t.p); }

static bool gives_operands(const attend_gradient *g) { return !g->of_keys && attend_gaining_of_pairs(g->t.p); }

static attend_give_rows rows_of(attend_matrix rows) { return (attend_give_rows){rows.memory, 4 * rows.pitch, 4}; }

attend_give attend_give_of(attend_gradient *g, ir_value first) {
  ir *b = g->t.b;
  ir_value warp = quotient(b, g->t.thread, PEGEN_PTX_BLOCK / ATTEND_WARPS), scale = ir_float(b, b->f32, LN_2);
  return (attend_give){.t = &g->t,
                       .gradient = g->parameter,
                       .of_keys = g->of_keys,
                       .warp = warp,
                       .lane = g->lane,
                       .gains = g->t.scores,
                       .products = g->products,
                       .pitch = g->t.shape.score_pitch,
                       .columns = g->t.shape.keys,
                       .rows = TEAMS_OF_WARP * g->t.shape.rows,
                       .together = TEAMS_OF_WARP,
                       .numbers = g->given,
                       .kept = g->of_keys ? 0 : kept_of(g->t.p),
                       .own_first = g->t.first,
                       .streamed_first = first,
                       .owner = g->owner,
                       .own = rows_of(g->own[ATTEND_OF_KEYS]),
                       .streamed = rows_of(g->passing[ATTEND_OF_KEYS]),
                       .scale = scale}; /* queries are in powers of two */
}

static int elements_of(const spec_input *input) { return input->size ? (int)input->size : 1; }

const gpu_input_sums *attend_input_sums_of(arena *a, const attention_plan *p) {
  gpu_input_sums *s = arena_new(a, gpu_input_sums);
  int own = p->n_places - p->n_numbers;
  s->n_sums = p->n_sums;
  s->terms = arena_array(a, int32_t, p->n_numbers);
  for (int i = 0; i < p->spec->n_inputs; i++) s->count += elements_of(&p->spec->input[i]);
  s->first = arena_array(a, int32_t, s->count + 1);
  for (int i = 0, element = 0; i < p->spec->n_inputs; i++)
    for (int k = 0; k < elements_of(&p->spec->input[i]); k++) {
      for (int n = 0; n < p->n_numbers; n++)
        if (p->number[n].input == i && p->number[n].element == k) s->terms[s->n_terms++] = own + n;
      s->first[++element] = s->n_terms;
    }
  return s;
}

void attend_gives_clear_block(attend_gradient *g) {
  attend_give give = attend_give_of(g, (ir_value){NULL});
  if (gives_operands(g)) attend_clear_elements(&give);
}

void attend_gives_clear(attend_gradient *g) {
  attend_give give = attend_give_of(g, (ir_value){NULL});
  if (gives_places(g)) attend_clear_shares(&give);
  if (g->shape.weighs && !g->of_keys) attend_clear_weights(&give);
}

void attend_gives_begin(attend_gradient *g) {
  attend_give give = attend_give_of(g, (ir_value){NULL});
  if (gives_operands(g)) attend_begin_operands(&give);
  if (gives_places(g)) attend_begin_tokens(&give);
}

void attend_gives_add(attend_gradient *g, ir_value first) {
  attend_give give = attend_give_of(g, first);
  if (gives_operands(g)) attend_give_operands(&give);
  if (g->shape.weighs && !g->of_keys) attend_give_weights(&give);
  if (gives_places(g)) attend_give_tokens(&give);
  if (g->shape.moves) attend_give_moves(&give);
}

void attend_gives_end(attend_gradient *g) {
  attend_give give = attend_give_of(g, (ir_value){NULL});
  if (gives_operands(g)) attend_end_operands(&give);
}

ir_value attend_gives_wanted(attend_gradient *g) {
  ir *b = g->t.b;
  attend_give give = attend_give_of(g, (ir_value){NULL});
  ir_value wanted = attend_operands_wanted(&give);
  if (gives_places(g)) wanted = ir_op2(b, "arith.ori", wanted, attend_tokens_wanted(&give));
  if (g->shape.weighs) wanted = ir_op2(b, "arith.ori", wanted, attend_weights_wanted(&give));
  return wanted;
}
