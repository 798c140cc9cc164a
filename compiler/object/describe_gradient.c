/* object/describe_gradient: pegen_gradient: kernel/loop.h; see object/describe_form.h. */
#include "cpu/gain.h"
#include "cpu/names.h"
#include "cpu/rotors.h"
#include "cpu/weight_gains.h"
#include "object/describe_form.h"

#include "kernel/loop.h"

static LLVMValueRef gradient_codes(describer *d, const spec *s, const plan_gradient_row *of,
                                   const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    const cpu_target *grad = emit_gradient_target(a, targets[i]);
    LLVMValueRef encode[NUMBER_CHANNEL_TYPES], unweigh[NUMBER_CHANNEL_TYPES];
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++) {
      encode[type] = describe_function(d, emit_gradient_name(a, grad, type));
      unweigh[type] = describe_function(d, emit_unweigh_name(a, grad, type));
    }
    const gradient_code *code = emit_gradient_codes(a, s, of, targets[i]);
    bool has_leaves = false;
    for (const gradient_code *part = code; part; part = part->next) has_leaves |= part->of->token->n_leaves > 0;
    LLVMValueRef gain[2];
    for (int frame = 0; frame < 2; frame++)
      gain[frame] = describe_function(d, emit_gain_name(code, (torque_frame)frame));
    LLVMValueRef prepare = has_leaves ? describe_function(d, emit_prepare_name(a, grad)) : describe_null(d);
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

/* A list of plans, one for each part that gains, and sums of their sizes. */
typedef struct gaining {
  int count, sums, scatters, torques;
  bool has_positions;
  int64_t prepared;
  const plan *token[SPEC_MAX_PARTS], *leaves[SPEC_MAX_PARTS], *places[SPEC_MAX_PARTS];
} gaining;

/* Where the elements are that gain. */
static const plan *places_of(arena *a, const plan_gradient *g) {
  plan *places = arena_new(a, plan);
  *places = *g->leaves;
  places->leaf = arena_array(a, const expr *, g->n_scatters + 1);
  places->n_leaves = g->n_scatters;
  for (int i = 0; i < g->n_scatters; i++) places->leaf[i] = g->scatter[i].leaf;
  return places;
}

static gaining gains_of(arena *a, const plan_gradient_row *of) {
  gaining sum = {.count = 0};
  for (int i = 0; i < of->n_parts; i++) {
    const plan_gradient *g = of->part[i];
    if (!g) continue;
    sum.token[sum.count] = g->token;
    sum.leaves[sum.count] = g->leaves;
    sum.places[sum.count++] = places_of(a, g);
    sum.sums += g->n_boundaries;
    sum.scatters += g->n_scatters;
    sum.torques += g->n_torques;
    sum.prepared += emit_prepared_bytes(g->token);
    sum.has_positions = sum.has_positions || g->has_positions;
  }
  return sum;
}

static int leaves_of(const plan *const *plans, int count) {
  int leaves = 0;
  for (int i = 0; i < count; i++) leaves += plans[i]->n_leaves;
  return leaves;
}

LLVMValueRef describe_gradient_row(describer *d, const spec *s, const plan_gradient_row *of, int blocks,
                                   const cpu_target *const *targets, int n_targets) {
  if (!of) return describe_null(d);
  gaining g = gains_of(d->request->memory, of);
  int n = g.count, n_leaves = leaves_of(g.token, n), n_scatter_leaves = leaves_of(g.leaves, n);
  describe_field fields[] = {FIELD(pegen_gradient, n_leaves, describe_i64(d, n_leaves)),
                             FIELD(pegen_gradient, prepared_bytes, describe_i64(d, g.prepared)),
                             FIELD(pegen_gradient, leaves, describe_leaves_of(d, g.token, n, blocks)),
                             FIELD(pegen_gradient, n_sums, describe_i64(d, g.sums)),
                             FIELD(pegen_gradient, n_scatter_leaves, describe_i64(d, n_scatter_leaves)),
                             FIELD(pegen_gradient, scatter_leaves, describe_leaves_of(d, g.leaves, n, blocks)),
                             FIELD(pegen_gradient, n_scatters, describe_i64(d, g.scatters)),
                             FIELD(pegen_gradient, scatters, describe_places_of(d, g.places, n, blocks)),
                             FIELD(pegen_gradient, has_positions, describe_i64(d, g.has_positions)),
                             FIELD(pegen_gradient, n_torques, describe_i64(d, g.torques)),
                             FIELD(pegen_gradient, targets, gradient_codes(d, s, of, targets, n_targets))};
  return describe_global(d, "gradient", DESCRIBE(d, pegen_gradient, fields), true);
}

LLVMValueRef describe_gradient(describer *d, const plan_gradient *g, const cpu_target *const *targets, int n_targets) {
  if (!g) return describe_null(d);
  const spec *s = g->token->spec;
  return describe_gradient_row(d, s, &(plan_gradient_row){1, {g}}, s->n_blocks, targets, n_targets);
}
