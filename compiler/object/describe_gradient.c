/* object/describe_gradient: pegen_gradient: kernel/loop.h; see object/describe_form.h. */
#include "cpu/gain.h"
#include "cpu/names.h"
#include "cpu/rotors.h"
#include "cpu/weight_gains.h"
#include "object/describe_form.h"

#include "kernel/loop.h"

static LLVMValueRef gradient_codes(describer *d, const plan_gradient *g, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    const cpu_target *grad = emit_gradient_target(a, targets[i]);
    LLVMValueRef encode[NUMBER_CHANNEL_TYPES], unweigh[NUMBER_CHANNEL_TYPES];
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
      encode[type] = describe_function(d, emit_gradient_name(a, grad, type));
      unweigh[type] = describe_function(d, emit_unweigh_name(a, grad, type));
    }
    gradient_code code = emit_gradient_code(a, g, targets[i]);
    LLVMValueRef gain[2];
    for (int frame = 0; frame < 2; frame++)
      gain[frame] = describe_function(d, emit_gain_name(&code, (torque_frame)frame));
    LLVMValueRef prepare = g->token->n_leaves ? describe_function(d, emit_prepare_name(a, grad)) : describe_null(d);
    describe_field fields[] = {
        FIELD(pegen_gradient_code, prepare, prepare),
        FIELD(pegen_gradient_code, encode, LLVMConstArray2(d->ptr, encode, NUMBER_CHANNEL_TYPES)),
        FIELD(pegen_gradient_code, scatter, describe_function(d, emit_scatter_name(a, grad))),
        FIELD(pegen_gradient_code, unweigh, LLVMConstArray2(d->ptr, unweigh, NUMBER_CHANNEL_TYPES)),
        FIELD(pegen_gradient_code, gain, LLVMConstArray2(d->ptr, gain, 2))};
    rows[i] = DESCRIBE(d, pegen_gradient_code, fields);
  }
  return describe_rows(d, "gradient_targets", rows, count);
}

/* Where the elements are that gain. */
static LLVMValueRef scatters(describer *d, const plan_gradient *g) {
  plan places = *g->leaves;
  places.leaf = arena_array(d->request->memory, const expr *, g->n_scatters + 1);
  places.n_leaves = g->n_scatters;
  for (int i = 0; i < g->n_scatters; i++) places.leaf[i] = g->scatter[i].leaf;
  return describe_leaves(d, &places);
}

LLVMValueRef describe_gradient(describer *d, const plan_gradient *g, const cpu_target *const *targets, int n_targets) {
  if (!g) return describe_null(d);
  describe_field fields[] = {FIELD(pegen_gradient, n_leaves, describe_i64(d, g->token->n_leaves)),
                             FIELD(pegen_gradient, prepared_bytes, describe_i64(d, emit_prepared_bytes(g->token))),
                             FIELD(pegen_gradient, leaves, describe_leaves(d, g->token)),
                             FIELD(pegen_gradient, n_sums, describe_i64(d, g->n_boundaries)),
                             FIELD(pegen_gradient, n_scatter_leaves, describe_i64(d, g->leaves->n_leaves)),
                             FIELD(pegen_gradient, scatter_leaves, describe_leaves(d, g->leaves)),
                             FIELD(pegen_gradient, n_scatters, describe_i64(d, g->n_scatters)),
                             FIELD(pegen_gradient, scatters, scatters(d, g)),
                             FIELD(pegen_gradient, has_positions, describe_i64(d, g->has_positions)),
                             FIELD(pegen_gradient, n_torques, describe_i64(d, g->n_torques)),
                             FIELD(pegen_gradient, targets, gradient_codes(d, g, targets, n_targets))};
  return describe_global(d, "gradient", DESCRIBE(d, pegen_gradient, fields), true);
}
