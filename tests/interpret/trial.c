/* interpret/trial: see interpret/trial.h. */
#include "interpret/trial.h"

#include "forms/form.h"
#include "verify/reference.h"

const program *trial_program(arena *a, const spec *s, const char *entry) {
  const form *f = form_of(s);
  const void *plan = f ? f->plan(a, s) : NULL;
  return plan ? form_program(a, f, plan, entry) : NULL;
}

static const double *grid_positions(arena *a, const spec *s, int64_t tokens) {
  double *positions = arena_array(a, double, tokens * s->n_axes + 1);
  for (int64_t n = s->skip_tokens; n < tokens; n++) reference_grid(s, n, positions + n * s->n_axes);
  return positions;
}

long double *trial_interpret(arena *a, const program *p, const double *positions, const trial_operands *operands,
                             const DLTensor *rows) {
  int64_t batches = rows->shape[0], heads = rows->shape[1], tokens = rows->shape[2], channels = rows->shape[3];
  number_type type = number_type_of(rows->dtype);
  double *in = arena_array(a, double, batches * heads * tokens * channels + 1), *next = in;
  long double *out = arena_array(a, long double, batches * heads * tokens * channels + 1);
  for (int64_t b = 0; b < batches; b++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t n = 0; n < tokens; n++)
        for (int64_t c = 0; c < channels; c++) *next++ = number_load(type, tensor_at(rows, b, h, n, c));
  program_call call = {.tokens = tokens,
                       .batches = batches,
                       .heads = {heads},
                       .positions = positions ? positions : grid_positions(a, p->spec, tokens),
                       .operands = operands->values};
  for (int s = 0; s < p->n_streams; s++) {
    call.rows[s][0] = in;
    call.results[s][0] = out;
  }
  for (int i = 0; spec_turns_rows(p->spec) && i < p->spec->n_inputs; i++) { /* the typical row for all */
    const spec_input *in = &p->spec->input[i];
    int64_t size = in->size ? in->size : 1, count = batches * heads * tokens;
    double *repeated = arena_array(a, double, count *size + 1);
    for (int64_t k = 0; k < count * size; k++) repeated[k] = operands->values[p->spec->n_operands + i][k % size];
    call.inputs[i] = repeated;
  }
  program_interpret(p, &call);
  return out;
}
