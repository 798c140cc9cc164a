/* verify/trial_attention_tangent: see verify/trial_attention_tangent.h. */
#include "verify/trial_attention_tangent.h"

#include <math.h>

static DLTensor *random_rows(arena *a, const DLTensor *of, row_order order, uint64_t *random) {
  const int64_t *n = of->shape;
  DLTensor *rows = tensor_rows(a, number_type_of(of->dtype), order, n[0], n[1], n[2], n[3]);
  tensor_randomize(rows, random);
  return rows;
}

attention_tangents attention_tangents_lay(arena *a, const attention_gradients *g, row_order order, uint64_t *random) {
  const attention_trial *t = &g->forward;
  attention_tangents made = {.q = random_rows(a, t->q, order, random),
                             .k = random_rows(a, t->k, order, random),
                             .v = random_rows(a, t->v, order, random),
                             .out = random_rows(a, g->out, order, random)};
  if (g->g_lse) made.lse = attention_trial_lse(a, t);
  return made;
}

int attention_tangents_call(const pegen_kernel *kernel, const attention_gradients *g, const attention_tangents *t,
                            int parts) {
  pegen_grad_args grad = {.struct_size = sizeof grad, .out = t->out, .lse = t->lse, .q = t->q, .k = t->k, .v = t->v};
  pegen_args args = attention_trial_args(kernel, &g->forward, g->out);
  args.grad = &grad;
  return trial_run(&args, NULL, kernel->attention_tangent, NULL, parts);
}

/* Both sides of the equation, and the sum of the absolute values of what is added. */
typedef struct sides {
  long double outputs, inputs, size;
} sides;

static void add_outputs(sides *to, const attention_gradients *g, const attention_tangents *t, int64_t b, int64_t h) {
  for (int64_t n = 0; n < t->out->shape[2]; n++) {
    long double sum = 0, size = 0;
    for (int c = 0; c < t->out->shape[3]; c++) {
      long double product = (long double)tensor_get(g->g_out, b, h, n, c) * tensor_get(t->out, b, h, n, c);
      sum += product;
      size += fabsl(product);
    }
    if (t->lse)
      sum += (long double)*attention_trial_lse_at(g->g_lse, b, h, n) * *attention_trial_lse_at(t->lse, b, h, n);
    to->outputs += sum;
    to->size += size;
  }
}

static void add_inputs(sides *to, const DLTensor *tangent, const gradient_sum *exact, int64_t b, int64_t h) {
  int64_t tokens = tangent->shape[2], width = tangent->shape[3];
  exact += (b * tangent->shape[1] + h) * tokens * width;
  for (int64_t n = 0; n < tokens; n++)
    for (int c = 0; c < width; c++, exact++) {
      long double by = tensor_get(tangent, b, h, n, c);
      to->inputs += exact->value * by;
      to->size += exact->size * fabsl(by);
    }
}

void attention_tangents_compare(const attention_gradients *g, const attention_tangents *t,
                                const attention_answer *exact, trial_error *worst) {
  int64_t k_heads = t->k->shape[1], group = k_heads ? t->q->shape[1] / k_heads : 0;
  for (int64_t b = 0; b < t->k->shape[0]; b++)
    for (int64_t shared = 0; shared < k_heads; shared++) {
      sides of = {0};
      for (int64_t h = shared * group; h < (shared + 1) * group; h++) {
        add_outputs(&of, g, t, b, h);
        add_inputs(&of, t->q, exact->q, b, h);
      }
      add_inputs(&of, t->k, exact->k, b, shared);
      add_inputs(&of, t->v, exact->v, b, shared);
      trial_error at = {.batch = b, .head = shared, .got = (double)of.outputs, .exact = of.inputs};
      at.spoilt = !isfinite(at.got);
      if (of.size > 0) at.error = fabsl(of.outputs - of.inputs) / (of.size * exact->score);
      trial_note(worst, at);
    }
}

bool attention_tangents_same(const attention_tangents *x, const attention_tangents *y) {
  bool same = tensor_identical(x->out, y->out);
  for (int64_t i = 0; x->lse && i < tensor_elements(x->lse); i++)
    same = same && ((const float *)x->lse->data)[i] == ((const float *)y->lse->data)[i];
  return same;
}
