/* object/describe_gradient: pegen_gradient: kernel/loop.h; see object/describe_form.h. */
#include "cpu/gain.h"
#include "cpu/rotors.h"
#include "object/describe_form.h"

#include "kernel/loop.h"

static LLVMValueRef gradient_codes(describer *d, const spec *s, const plan_gradient_row *of,
                                   const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    const cpu_target *grad = emit_gradient_target(a, targets[i]);
    const gradient_code *code = emit_gradient_codes(a, s, of, targets[i]);
    bool has_leaves = false;
    for (const gradient_code *part = code; part; part = part->next) has_leaves |= part->of->token->n_leaves > 0;
    LLVMValueRef gain[2];
    for (int frame = 0; frame < 2; frame++)
      gain[frame] = describe_function(d, emit_gain_name(code, (torque_frame)frame));
    rows[i] = DESCRIBE(d, pegen_gradient_code, CODE(prepare, has_leaves ? emit_prepare_name(a, grad) : NULL),
                       CODES(encode, emit_gradient_name, grad), CODE(scatter, emit_scatter_name(a, grad)),
                       CODES(unweigh, emit_unweigh_name, grad), F(gain, gain));
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
  return describe_global(d, "gradient",
                         DESCRIBE(d, pegen_gradient, F(n_leaves, n_leaves), F(prepared_bytes, g.prepared),
                                  F(leaves, describe_leaves_of(d, g.token, n, blocks)), F(n_sums, g.sums),
                                  F(n_scatter_leaves, n_scatter_leaves),
                                  F(scatter_leaves, describe_leaves_of(d, g.leaves, n, blocks)),
                                  F(n_scatters, g.scatters), F(scatters, describe_places_of(d, g.places, n, blocks)),
                                  F(has_positions, g.has_positions), F(n_torques, g.torques),
                                  F(targets, gradient_codes(d, s, of, targets, n_targets))),
                         true);
}

LLVMValueRef describe_gradient(describer *d, const plan_gradient *g, const cpu_target *const *targets, int n_targets) {
  if (!g) return describe_null(d);
  const spec *s = g->token->spec;
  return describe_gradient_row(d, s, &(plan_gradient_row){1, {g}}, s->n_blocks, targets, n_targets);
}
