/* verify/trial_attention: see verify/trial_attention.h. */
#include "verify/trial_attention.h"

#include "verify/reference.h"
#include "verify/reference_attention.h"

#include <math.h>
#include <stdlib.h>

void attention_trial_fill(arena *a, attention_trial *t, const attention_sizes *sizes, number_type type, row_order order,
                          uint64_t *random) {
  const spec *s = t->spec;
  t->q = tensor_rows(a, type, order, sizes->batch, sizes->heads, sizes->tokens, s->head_dim);
  t->k = tensor_rows(a, type, order, sizes->batch, sizes->k_heads, sizes->keys, s->head_dim);
  t->v = tensor_rows(a, type, order, sizes->batch, sizes->k_heads, sizes->keys, s->pairwise->value_dim);
  tensor_randomize(t->q, random);
  tensor_randomize(t->k, random);
  tensor_randomize(t->v, random);
  t->inputs = trial_random_inputs(a, s, type, sizes->batch, sizes->heads, sizes->tokens, random);
}

DLTensor *attention_trial_out(arena *a, const attention_trial *t, row_order order) {
  const int64_t *shape = t->q->shape;
  return tensor_rows(a, number_type_of(t->q->dtype), order, shape[0], shape[1], shape[2], t->spec->pairwise->value_dim);
}

int attention_trial_call(const pegen_kernel *kernel, const attention_trial *t, DLTensor *out, int parts) {
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = kernel->n_operands,
                     .q = t->q,
                     .k = t->k,
                     .v = t->v,
                     .out = out,
                     .positions = t->positions,
                     .k_positions = t->k_positions,
                     .operands = t->operands.tensors,
                     .inputs = t->inputs.tensors,
                     .n_inputs = kernel->n_inputs,
                     .causal = t->causal,
                     .scale = t->scale};
  args.workspace_bytes = kernel->workspace(&args);
  if (args.workspace_bytes) args.workspace = malloc(args.workspace_bytes);
  int error = 0;
  for (int part = parts - 1; part >= 0; part--) {
    int failed = kernel->attention(&args, part, parts);
    if (failed) error = failed;
  }
  free(args.workspace);
  return error;
}

/* ---- comparison ---- */

static const double *rows_as_double(arena *a, const DLTensor *t, int64_t b, int64_t h) {
  number_type type = number_type_of(t->dtype);
  double *rows = arena_array(a, double, t->shape[2] * t->shape[3] + 1);
  for (int64_t n = 0; n < t->shape[2]; n++)
    for (int64_t c = 0; c < t->shape[3]; c++) rows[n * t->shape[3] + c] = number_load(type, tensor_at(t, b, h, n, c));
  return rows;
}

/* Coordinates of all tokens of a batch, whatever they are given as. */
static const double *places(arena *a, const spec *s, const DLTensor *positions, int64_t batch, int64_t tokens) {
  double *values = arena_array(a, double, tokens * s->n_axes + 1);
  for (int64_t n = 0; n < tokens; n++)
    for (int axis = 0; axis < s->n_axes; axis++) {
      if (!positions) {
        if (s->grid[0] && n >= s->skip_tokens) reference_grid(s, n, values + n * s->n_axes);
        continue;
      }
      int64_t index = ((positions->ndim == 3 ? batch : 0) * tokens + n) * s->n_axes + axis;
      values[n * s->n_axes + axis] =
          number_load(number_type_of(positions->dtype), (char *)positions->data + index * (positions->dtype.bits / 8));
    }
  return values;
}

static long double largest(const double *values, int64_t count) {
  long double size = 0;
  for (int64_t i = 0; i < count; i++) size = fmaxl(size, fabsl(values[i]));
  return size;
}

static void compare_row(const attention_trial *t, const reference_query *query, const DLTensor *out, int64_t b,
                        int64_t h, long double *scores, long double *exact, trial_error *worst) {
  number_type type = number_type_of(out->dtype);
  int width = t->spec->pairwise->value_dim;
  reference_attention(t->spec, query, scores, exact);
  long double score = 1, size = largest(query->v, query->keys * width);
  for (int64_t key = 0; key < query->visible; key++)
    if (isfinite(scores[key])) score = fmaxl(score, fabsl(scores[key]));
  for (int c = 0; c < width; c++) {
    double got = number_load(type, tensor_at(out, b, h, query->token, c));
    long double error = fabsl(got - exact[c]);
    if (type != NUMBER_F32) error = fmaxl(0, error - number_half_ulp(type, exact[c]));
    if (error > 0) error /= score * size;
    if (isnan(error)) error = INFINITY;
    if (error > worst->error || !isfinite(got))
      *worst = (trial_error){error, !isfinite(got), b, h, query->token, c, got, exact[c]};
  }
}

void attention_trial_compare(arena *a, const attention_trial *t, const DLTensor *out, int64_t step,
                             trial_error *worst) {
  const spec *s = t->spec;
  int64_t heads = t->q->shape[1], tokens = t->q->shape[2], keys = t->k->shape[2],
          group = t->k->shape[1] ? heads / t->k->shape[1] : 1;
  long double *scores = arena_array(a, long double, keys + 1),
              *exact = arena_array(a, long double, s->pairwise->value_dim);
  const DLTensor *of_keys = t->k_positions ? t->k_positions : t->positions;
  for (int64_t b = 0; b < t->q->shape[0]; b++) {
    const double *at = places(a, s, t->positions, b, tokens), *keys_at = places(a, s, of_keys, b, keys);
    for (int64_t h = 0; h < heads; h++) {
      const double *q = rows_as_double(a, t->q, b, h), *k = rows_as_double(a, t->k, b, h / group),
                   *v = rows_as_double(a, t->v, b, h / group);
      for (int64_t n = 0; n < tokens; n++) {
        if (n % step && n != tokens - 1 && n > s->skip_tokens) continue;
        const double *inputs[SPEC_MAX_INPUTS];
        trial_input_rows(s, &t->inputs, (b * heads + h) * tokens + n, inputs);
        int64_t visible = t->causal ? n + keys - tokens + 1 : keys;
        reference_query query = {.q = q + n * s->head_dim,
                                 .position = at + n * s->n_axes,
                                 .token = n,
                                 .k = k,
                                 .v = v,
                                 .positions = keys_at,
                                 .keys = keys,
                                 .visible = visible < 0 ? 0 : visible,
                                 .head = s->heads > 1 ? (int)h : 0,
                                 .scale = t->scale,
                                 .operands = t->operands.values,
                                 .inputs = inputs};
        compare_row(t, &query, out, b, h, scores, exact, worst);
      }
    }
  }
}
