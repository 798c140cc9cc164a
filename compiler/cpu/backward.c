/* cpu/backward: see cpu/backward.h. */
#include "cpu/backward.h"

#include "cpu/encode.h"
#include "cpu/rotors.h"
#include "cpu/schedule.h"

const cpu_target *emit_backward_target(arena *a, const cpu_target *target) {
  cpu_target *back = arena_new(a, cpu_target);
  *back = *target;
  back->suffix = arena_printf(a, "%s_back", target->suffix);
  return back;
}

/* Whether a vector's constants in a term, which stand in the code of rows, are the same. */
static bool constants_alike(const plan *p, const plan *q, const plan_tile *t, int term, int vector) {
  if (t->slot[term * t->n_vectors + vector] != PLAN_CONSTANT) return true;
  for (int channel = t->start[vector]; channel < t->start[vector] + t->width; channel++)
    if (plan_coefficient(p, term, channel) != plan_coefficient(q, term, channel)) return false;
  return true;
}

/* Whether rows are turned by the transposed matrices as they are by the matrices, but for numbers that are computed
 * of a token. */
static bool turns_alike(const plan *p, const plan_tile *t, const plan *q, const plan_tile *u) {
  int n = p->spec->n_components;
  if (p->n_terms != q->n_terms) return false;
  for (int i = 0; i < p->n_terms * n; i++)
    if (p->source[i] != q->source[i]) return false;
  for (int i = 0; i < p->n_terms * t->n_vectors; i++)
    if (t->slot[i] != u->slot[i] || !constants_alike(p, q, t, i / t->n_vectors, i % t->n_vectors)) return false;
  for (int channel = p->begin; channel < p->end; channel++)
    if (plan_is_identity(p, channel) != plan_is_identity(q, channel)) return false;
  return true;
}

static bool rows_turn_alike(const row_code *forward, const row_code *back) {
  for (int i = 0; i < forward->n_parts; i++)
    if (!turns_alike(forward->part[i].p, forward->part[i].t, back->part[i].p, back->part[i].t)) return false;
  return true;
}

void emit_backward(ir *b, arena *a, const program *transposed, const cpu_target *target, unsigned dtypes) {
  const cpu_target *back = emit_backward_target(a, target);
  const program *scheduled = cpu_schedule(a, transposed);
  const plan *encode[SPEC_MAX_PARTS], *turned[SPEC_MAX_PARTS];
  int count = program_plans(transposed, encode);
  bool has_table = false;
  for (int i = 0; i < count; i++) {
    turned[i] = plan_transpose(a, encode[i]);
    has_table = has_table || (turned[i]->n_values > 0 && !turned[i]->of_rows);
  }
  row_code forward = emit_row_code(a, transposed->spec, encode, count, target),
           row = emit_row_code(a, transposed->spec, turned, count, target);
  const chunk_walk *walk = emit_walks_of(b, a, &row, back);
  emit_rotor(walk);
  if (has_table) emit_unfold(walk);
  bool alike = !spec_maps_channels(transposed->spec) && rows_turn_alike(&forward, &row);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES && !alike; dtype++)
    for (int streaming = 0; streaming <= target->has_streaming; streaming++)
      if (dtypes & 1u << dtype)
        emit_encode(b, a, &(encode_kind){scheduled, &row, back, dtype, dtype, streaming, false, NULL, false, 0});
}
