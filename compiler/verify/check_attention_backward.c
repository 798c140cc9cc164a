/* verify/check_attention_backward: gradients of attention against the reference's; see verify/check_kind.h. */
#include "verify/check_kind.h"
#include "verify/trial_attention_tangent.h"

static void check_rows(checker *c, const char *name, const char *what, const attention_gradients *g,
                       const attention_answer *exact) {
  const DLTensor *got[] = {g->q, g->k, g->v};
  const gradient_sum *sums[] = {exact->q, exact->k, exact->v};
  trial_error worst = {0};
  for (int i = 0; i < 3; i++) attention_gradients_compare(got[i], sums[i], exact->score, &worst);
  check_report(c, name, what, attention_gradients_bound(g), &worst);
}

typedef void compare_function(const attention_gradients *g, const attention_answer *exact, trial_error *worst);

static void check_gained(checker *c, const char *name, const attention_gradients *g, const attention_answer *exact,
                         const char *what, compare_function *compare) {
  trial_error worst = {0};
  compare(g, exact, &worst);
  check_report(c, name, what, attention_gradients_bound(g), &worst);
}

/* A call for all gradients that there are: of operands, positions and inputs, of some of them, of rows alone. */
static int call_for_most(checker *c, attention_gradients *g) {
  DLTensor **operands = g->operands, **inputs = g->inputs;
  int error = PEGEN_ERROR_NO_GRADIENT;
  for (int less = 0; less < 8 && error == PEGEN_ERROR_NO_GRADIENT; less++) {
    g->operands = less & 2 ? NULL : operands;
    g->inputs = less & 4 ? NULL : inputs;
    g->positions = g->k_positions = NULL;
    if (!(less & 1)) attention_gradients_of_positions(c->memory, g, NUMBER_F64);
    error = attention_gradients_call(c->kernel, g, 1);
  }
  return error;
}

static void check_tangents(checker *c, const char *name, const char *what, const attention_gradients *g,
                           const attention_answer *exact) {
  if (!c->kernel->attention_tangent) return; /* of GPUs */
  trial_error worst = {0};
  attention_tangents t = attention_tangents_lay(c->memory, g, ROWS_BNHD, &c->random), parted = t;
  if (!check_called(c, name, what, attention_tangents_call(c->kernel, g, &t, 1))) return;
  attention_tangents_compare(g, &t, exact, &worst);
  check_report(c, name, "tangents", attention_gradients_bound(g), &worst);
  parted.out = tensor_copy(c->memory, t.out);
  tensor_randomize(parted.out, &c->random);
  if (t.lse) parted.lse = attention_trial_lse(c->memory, &g->forward);
  if (!check_called(c, name, what, attention_tangents_call(c->kernel, g, &parted, CHECK_PARTS))) return;
  check_report_bits(c, name, "tangents in 1 and 3 parts", attention_tangents_same(&t, &parted));
}

void check_attention_backward(checker *c, const attention_trial *trial, const char *name, const char *what,
                              int64_t step) {
  if (!c->kernel->attention_backward) return;
  attention_gradients g;
  int error = attention_gradients_fill(c->memory, &g, trial, c->kernel, !trial->causal, step, ROWS_BNHD, &c->random);
  if (!check_called(c, name, what, error)) return;
  error = call_for_most(c, &g);
  if (error == PEGEN_ERROR_NO_GRADIENT) return; /* a kind without: `explain` says so */
  if (!check_called(c, name, what, error)) return;
  attention_answer exact = attention_gradients_answer(c->memory, &g, step);
  check_rows(c, name, what, &g, &exact);
  if (g.operands) check_gained(c, name, &g, &exact, "gradients of operands", attention_gradients_compare_operands);
  if (g.inputs) check_gained(c, name, &g, &exact, "gradients of inputs", attention_gradients_compare_inputs);
  if (g.positions) check_gained(c, name, &g, &exact, "gradients of positions", attention_gradients_compare_positions);
  check_tangents(c, name, what, &g, &exact);
  /* Fewer parts than heads of k, and more, which share them. */
  int many = (int)(2 * trial->k->shape[0] * trial->k->shape[1] + 1);
  bool same = true;
  for (int i = 0; i < 2; i++) {
    attention_gradients parted = attention_gradients_room(c->memory, &g);
    if (!check_called(c, name, what, attention_gradients_call(c->kernel, &parted, i ? many : CHECK_PARTS))) return;
    same = same && attention_gradients_same(&g, &parted);
  }
  check_report_bits(c, name, arena_printf(c->memory, "gradients in 1, 3 and %d parts", many), same);
}
