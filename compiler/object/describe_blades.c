/* object/describe_blades: pegen_blades, of rotors and of sums: kernel/loop.h; see object/describe_form.h. */
#include "cpu/backward.h"
#include "cpu/rotors.h"
#include "object/describe_form.h"
#include "plan/gradient.h"

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

/* targets: under whose names what is computed of operands and tokens stands. of_rows: under whose the coefficients of
 * rows do, and the code of rows where it is code of its own. */
static LLVMValueRef target_rows(describer *d, const char *name, const cpu_target *const *targets,
                                const cpu_target *const *of_rows, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    LLVMValueRef encode[NUMBER_CHANNEL_TYPES * 2];
    for (int e = 0; e < NUMBER_CHANNEL_TYPES * 2; e++) {
      LLVMValueRef own = describe_function(d, emit_encode_name(a, of_rows[i], e / 2, e % 2));
      encode[e] = LLVMIsNull(own) ? describe_function(d, emit_encode_name(a, targets[i], e / 2, e % 2)) : own;
    }
    describe_field fields[] = {
        FIELD(pegen_target_code, prepare, describe_function(d, emit_prepare_name(a, targets[i]))),
        FIELD(pegen_target_code, encode, LLVMConstArray2(d->ptr, encode, NUMBER_CHANNEL_TYPES * 2)),
        FIELD(pegen_target_code, values, describe_function(d, emit_values_name(a, targets[i]))),
        FIELD(pegen_target_code, converting, converting(d, of_rows[i])),
        FIELD(pegen_target_code, rotor, describe_function(d, emit_rotor_name(a, of_rows[i]))),
        FIELD(pegen_target_code, unfold, describe_function(d, emit_unfold_name(a, of_rows[i])))};
    rows[i] = DESCRIBE(d, pegen_target_code, fields);
  }
  return describe_rows(d, name, rows, count);
}

/* Rows' gradients: the same by transposed matrices. */
static LLVMValueRef backward_rows(describer *d, const cpu_target *const *targets, int count) {
  const cpu_target *back[TARGET_MAX];
  if (!d->request->gradients || d->request->form->kind == FORM_ADDITIVE) return describe_null(d);
  for (int i = 0; i < count; i++) back[i] = emit_backward_target(d->request->memory, targets[i]);
  return target_rows(d, "backward", targets, back, count);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan *p = of;
  const plan_gradient *of_gradient = d->request->gradients ? plan_gradient_build(d->request->memory, p) : NULL;
  describe_field fields[] = {FIELD(pegen_blades, n_blocks, describe_i64(d, p->spec->n_blocks)),
                             FIELD(pegen_blades, lanes, describe_i64(d, p->lanes)),
                             FIELD(pegen_blades, n_leaves, describe_i64(d, p->n_leaves)),
                             FIELD(pegen_blades, leaves, describe_leaves(d, p)),
                             FIELD(pegen_blades, prepared_bytes, describe_i64(d, emit_prepared_bytes(p))),
                             FIELD(pegen_blades, targets, target_rows(d, "targets", targets, targets, n_targets)),
                             FIELD(pegen_blades, values_bytes, describe_i64(d, emit_values_bytes(p))),
                             FIELD(pegen_blades, backward, backward_rows(d, targets, n_targets)),
                             FIELD(pegen_blades, gradient, describe_gradient(d, of_gradient, targets, n_targets)),
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
