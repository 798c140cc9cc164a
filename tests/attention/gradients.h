/* gradients.h: what a call for gradients of attention gave, against the reference and against other calls. */
#ifndef PEGEN_TESTS_ATTENTION_GRADIENTS_H
#define PEGEN_TESTS_ATTENTION_GRADIENTS_H

#include "fixture.h"
#include "test.h"
#include "verify/trial_attention_backward.h"

#include <string.h>

/* All that was asked for; g has rows of q, k and v. step: of the queries that gradients come in for. */
static inline void gradients_compare(arena *a, const attention_gradients *g, int64_t step) {
  static const char *const names[] = {"q", "k", "v", "inputs", "operands", "positions"};
  attention_answer exact = attention_gradients_answer(a, g, step);
  long double bound = attention_gradients_bound(g);
  trial_error worst[6];
  memset(worst, 0, sizeof worst);
  attention_gradients_compare(g->q, exact.q, exact.score, &worst[0]);
  attention_gradients_compare(g->k, exact.k, exact.score, &worst[1]);
  attention_gradients_compare(g->v, exact.v, exact.score, &worst[2]);
  if (g->inputs) attention_gradients_compare_inputs(g, &exact, &worst[3]);
  if (g->operands) attention_gradients_compare_operands(g, &exact, &worst[4]);
  attention_gradients_compare_positions(g, &exact, &worst[5]);
  for (int i = 0; i < 6; i++)
    if (worst[i].spoilt || !(worst[i].error <= bound)) fail_msg("%s: %s", names[i], trial_error_text(a, &worst[i]));
}

/* The first `counts` of some numbers of parts, 4 at most: each gives the same bits. */
static inline void gradients_assert_parts(arena *a, const pegen_kernel *kernel, const attention_gradients *g,
                                          int counts) {
  static const int parts[] = {2, 3, 9, 40};
  for (int i = 0; i < counts; i++) {
    attention_gradients other = attention_gradients_room(a, g);
    assert_int_equal(attention_gradients_call(kernel, &other, parts[i]), 0);
    assert_true(attention_gradients_same(g, &other));
  }
}

/* Outputs and all gradients of a call, in some numbers of parts. has_reference: its positions are numbers. */
static inline void gradients_of_call(fixture *f, const pegen_kernel *kernel, const attention_trial *t, const char *what,
                                     bool has_reference) {
  attention_gradients g;
  trial_error worst = {0};
  assert_int_equal(attention_gradients_fill(f->memory, &g, t, kernel, true, 1, ROWS_GAPS, &f->random), 0);
  if (has_reference) {
    attention_trial_compare(f->memory, kernel, t, g.out, 1, &worst);
    if (worst.spoilt || !(worst.error <= 0x1p-18L)) fail_msg("%s: %s", what, trial_error_text(f->memory, &worst));
  }
  assert_int_equal(attention_gradients_call(kernel, &g, 1), 0);
  if (has_reference) gradients_compare(f->memory, &g, 1);
  gradients_assert_parts(f->memory, kernel, &g, 3);
}

#endif
