/* gpu/attention_gives: which operands and inputs gain of pairs; see gpu/attention_backward.h and gpu/give.h. */
#include "gpu/attention_backward.h"

unsigned attend_gaining_of_pairs(const attention_plan *p) {
  unsigned bits = 0, turning = attend_turning_operands(p);
  if (p->columns) return 0;
  for (int i = 0; i < p->n_scatters; i++) bits |= 1u << p->scatter[i].leaf->index;
  for (int i = 0; p->torques && i < p->torques->n_scatters; i++) bits |= 1u << p->torques->scatter[i].leaf->index;
  for (int i = 0; p->torques && i < p->torques->n_scatters; i++) /* of an operand all or nothing */
    if (!(turning >> p->torques->scatter[i].leaf->index & 1)) bits &= ~(1u << p->torques->scatter[i].leaf->index);
  return bits;
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
