/* object/describe_polynomial: pegen_widen, of columns that widen q and k: kernel/loop.h; see object/describe_form.h. */
#include "cpu/rotors.h"
#include "cpu/widen.h"
#include "cpu/widen_backward.h"
#include "object/describe_form.h"
#include "plan/widen.h"
#include "plan/widen_gradient.h"

#include "kernel/loop.h"

static void add(digest *h, const void *of) {
  const plan_widen *p = of;
  const spec_polynomial *bias = p->spec->polynomial;
  digest_expr(h, bias->value);
  digest_bytes(h, bias->origin, sizeof bias->origin);
  bool flags[] = {bias->has_call_origin, bias->exact_scores, bias->split_columns};
  digest_bytes(h, flags, sizeof flags);
}

static LLVMValueRef target_rows(describer *d, const plan_widen *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    LLVMValueRef widen[NUMBER_CHANNEL_TYPES * 4];
    for (int f = 0; f < NUMBER_CHANNEL_TYPES * 4; f++) {
      bool wide = f / 2 % 2 && p->spec->n_inputs > 0;
      widen[f] = describe_function(d, emit_widen_name(a, targets[i], f / 4, wide, f % 2));
    }
    rows[i] = DESCRIBE(d, pegen_widen_code, CODE(prepare, emit_prepare_name(a, targets[i])), F(widen, widen));
  }
  return describe_rows(d, "targets", rows, count);
}

static LLVMValueRef gradient_rows(describer *d, const plan_widen *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  if (!describe_gains(d)) return describe_null(d);
  for (int i = 0; i < count; i++) {
    LLVMValueRef queries[NUMBER_CHANNEL_TYPES * 2];
    for (int f = 0; f < NUMBER_CHANNEL_TYPES * 2; f++) {
      bool wide = f % 2 && p->spec->n_inputs > 0;
      queries[f] = describe_function(d, emit_queries_gain_name(a, targets[i], f / 2, wide));
    }
    rows[i] = DESCRIBE(d, pegen_widen_gradient_code, CODES(weights, emit_weights_gain_name, targets[i]),
                       F(queries, queries), CODES(keys, emit_keys_gain_name, targets[i]));
  }
  return describe_rows(d, "gradients", rows, count);
}

static LLVMValueRef origin(describer *d, const spec *s) {
  LLVMValueRef values[SPEC_MAX_AXES];
  for (int axis = 0; axis < s->n_axes; axis++) values[axis] = describe_f64(d, s->polynomial->origin[axis]);
  return describe_array(d, "origin", LLVMDoubleTypeInContext(d->context), values, s->n_axes);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan_widen *p = of;
  const plan_gradient *gradient = describe_gains(d) ? plan_widen_gradient(d->request->memory, p) : NULL;
  return describe_global(d, "widen",
                         DESCRIBE(d, pegen_widen, F(n_blocks, p->spec->n_blocks), F(lanes, p->values->lanes),
                                  F(n_leaves, p->values->n_leaves), F(leaves, describe_leaves(d, p->values)),
                                  F(prepared_bytes, emit_prepared_bytes(p->values)),
                                  F(targets, target_rows(d, p, targets, n_targets)), F(n_weights, p->p->n_weights),
                                  F(origin, origin(d, p->spec)), F(backward, gradient_rows(d, p, targets, n_targets)),
                                  F(gradient, describe_gradient(d, gradient, targets, n_targets))),
                         true);
}

const describe_form describe_polynomial = {describe, add};
