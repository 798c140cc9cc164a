/* object/describe_blades: pegen_blades, of rotors and of sums: kernel/loop.h; see object/describe_form.h. */
#include "cpu/backward.h"
#include "cpu/gain.h"
#include "cpu/rotors.h"
#include "object/describe_form.h"

#include "kernel/loop.h"

static void add(digest *h, const void *of) {
  const plan *p = of;
  if (p->for_threads) p = p->for_threads; /* one of the closed forms, wherever it is computed */
  for (int i = 0; i < p->spec->n_components * p->spec->n_components; i++) digest_expr(h, p->program->matrix.entry[i]);
}

/* Functions by both types; none where no pair of types is compiled in. */
static LLVMValueRef converting(describer *d, const cpu_target *target) {
  enum { OTHERS = NUMBER_OUT_TYPES - NUMBER_CHANNEL_TYPES };
  LLVMValueRef encode[NUMBER_CHANNEL_TYPES * OTHERS];
  if (!(d->request->dtypes & number_all_pairs())) return describe_null(d);
  for (int i = 0; i < NUMBER_CHANNEL_TYPES * OTHERS; i++)
    encode[i] = describe_function(
        d, emit_converting_name(d->request->memory, target, i / OTHERS, NUMBER_CHANNEL_TYPES + i % OTHERS));
  return describe_array(d, "converting", d->ptr, encode, NUMBER_CHANNEL_TYPES * OTHERS);
}

/* values: targets under whose names what is computed of operands and tokens stands. */
static LLVMValueRef target_rows(describer *d, const char *name, const cpu_target *const *targets,
                                const cpu_target *const *values, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    LLVMValueRef encode[NUMBER_CHANNEL_TYPES * 2];
    for (int e = 0; e < NUMBER_CHANNEL_TYPES * 2; e++)
      encode[e] = describe_function(d, emit_encode_name(a, targets[i], e / 2, e % 2));
    describe_field fields[] = {
        FIELD(pegen_target_code, prepare, describe_function(d, emit_prepare_name(a, values[i]))),
        FIELD(pegen_target_code, encode, LLVMConstArray2(d->ptr, encode, NUMBER_CHANNEL_TYPES * 2)),
        FIELD(pegen_target_code, values, describe_function(d, emit_values_name(a, values[i]))),
        FIELD(pegen_target_code, converting, converting(d, targets[i]))};
    rows[i] = DESCRIBE(d, pegen_target_code, fields);
  }
  return describe_rows(d, name, rows, count);
}

/* Rows' gradients: functions of the same kinds. */
static LLVMValueRef backward_rows(describer *d, const cpu_target *const *targets, int count) {
  const cpu_target *back[TARGET_MAX];
  if (!d->request->gradients || d->request->form->kind == FORM_ADDITIVE) return describe_null(d);
  for (int i = 0; i < count; i++) back[i] = emit_backward_target(d->request->memory, targets[i]);
  return target_rows(d, "backward", back, targets, count);
}

static LLVMValueRef gradient_codes(describer *d, const plan_gradient *g, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    const cpu_target *grad = emit_gradient_target(a, targets[i]);
    LLVMValueRef encode[NUMBER_CHANNEL_TYPES];
    for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
      encode[type] = describe_function(d, emit_gradient_name(a, grad, type));
    LLVMValueRef prepare = g->token->n_leaves ? describe_function(d, emit_prepare_name(a, grad)) : describe_null(d);
    describe_field fields[] = {
        FIELD(pegen_gradient_code, prepare, prepare),
        FIELD(pegen_gradient_code, encode, LLVMConstArray2(d->ptr, encode, NUMBER_CHANNEL_TYPES)),
        FIELD(pegen_gradient_code, scatter, describe_function(d, emit_scatter_name(a, grad)))};
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

static LLVMValueRef gradient(describer *d, const plan *p, const cpu_target *const *targets, int n_targets) {
  const plan_gradient *g = d->request->gradients ? plan_gradient_build(d->request->memory, p) : NULL;
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
                             FIELD(pegen_gradient, targets, gradient_codes(d, g, targets, n_targets))};
  return describe_global(d, "gradient", DESCRIBE(d, pegen_gradient, fields), true);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan *p = of;
  describe_field fields[] = {FIELD(pegen_blades, n_blocks, describe_i64(d, p->spec->n_blocks)),
                             FIELD(pegen_blades, lanes, describe_i64(d, p->lanes)),
                             FIELD(pegen_blades, n_leaves, describe_i64(d, p->n_leaves)),
                             FIELD(pegen_blades, leaves, describe_leaves(d, p)),
                             FIELD(pegen_blades, prepared_bytes, describe_i64(d, emit_prepared_bytes(p))),
                             FIELD(pegen_blades, targets, target_rows(d, "targets", targets, targets, n_targets)),
                             FIELD(pegen_blades, values_bytes, describe_i64(d, emit_values_bytes(p))),
                             FIELD(pegen_blades, backward, backward_rows(d, targets, n_targets)),
                             FIELD(pegen_blades, gradient, gradient(d, p, targets, n_targets)),
                             FIELD(pegen_blades, is_sum, describe_i64(d, d->request->form->kind == FORM_ADDITIVE))};
  return describe_global(d, "blades", DESCRIBE(d, pegen_blades, fields), true);
}

static void add_sum(digest *h, const void *of) {
  static const char kind[] = "sum";
  digest_bytes(h, kind, sizeof kind);
  add(h, of);
}

const describe_form describe_blades = {describe, add};
const describe_form describe_additive = {describe, add_sum};
