/* object/describe_change_of_basis: pegen_dense of turns after a change of basis of the whole head, which is one block:
 * kernel/dense.h; see object/describe_form.h. */
#include "cpu/change_of_basis.h"
#include "cpu/dense.h"
#include "cpu/rotors.h"
#include "object/describe_form.h"

#include "kernel/dense.h"

static void add(digest *h, const void *of) {
  const plan_basis *p = of;
  const spec *s = p->spec;
  const spec_skew *m = &s->basis->matrix;
  int numbers[] = {s->inverse, m->operand, (int)m->rule, m->n_heads};
  digest_bytes(h, numbers, sizeof numbers);
  digest_bytes(h, m->offset, sizeof *m->offset * (size_t)m->n_heads);
  for (int i = 0; i < s->n_components * s->n_components; i++) digest_expr(h, p->turns->program->matrix.entry[i]);
}

static LLVMValueRef target_rows(describer *d, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX], null = describe_null(d);
  for (int i = 0; i < count; i++) {
    const cpu_target *t = targets[i];
    LLVMValueRef apply[NUMBER_CHANNEL_TYPES], act[NUMBER_CHANNEL_TYPES] = {null, null, null};
    for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++)
      apply[dtype] = describe_function(d, emit_apply_name(a, t, dtype));
    describe_field fields[] = {FIELD(pegen_dense_code, unit, describe_i64(d, 1)),
                               FIELD(pegen_dense_code, lanes, describe_i64(d, 0)),
                               FIELD(pegen_dense_code, padded, describe_i64(d, 0)),
                               FIELD(pegen_dense_code, prepare, describe_function(d, emit_prepare_name(a, t))),
                               FIELD(pegen_dense_code, angles, describe_function(d, emit_rotor_name(a, t))),
                               FIELD(pegen_dense_code, form, describe_function(d, emit_form_name(a, t, false))),
                               FIELD(pegen_dense_code, form_rest, null),
                               FIELD(pegen_dense_code, apply, LLVMConstArray2(d->ptr, apply, NUMBER_CHANNEL_TYPES)),
                               FIELD(pegen_dense_code, stream, null),
                               FIELD(pegen_dense_code, sum, null),
                               FIELD(pegen_dense_code, bound, null),
                               FIELD(pegen_dense_code, act, LLVMConstArray2(d->ptr, act, NUMBER_CHANNEL_TYPES))};
    rows[i] = DESCRIBE(d, pegen_dense_code, fields);
  }
  return describe_rows(d, "targets", rows, count);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan_basis *p = of;
  const spec *s = p->spec;
  int64_t coefficients = 0; /* bytes, the most of all targets */
  for (int i = 0; i < n_targets; i++) {
    int64_t bytes = emit_basis_coefficient_bytes(d->request->memory, p, targets[i]);
    if (bytes > coefficients) coefficients = bytes;
  }
  LLVMValueRef basis = describe_global(d, "basis", describe_skew(d, &s->basis->matrix, 1), true);
  describe_field fields[] = {FIELD(pegen_dense, size, describe_i64(d, s->head_dim)),
                             FIELD(pegen_dense, n_blocks, describe_i64(d, 1)),
                             FIELD(pegen_dense, terms, describe_i64(d, 1)),
                             FIELD(pegen_dense, angle_lanes, describe_i64(d, (coefficients + 7) / 8)),
                             FIELD(pegen_dense, inverse, describe_i64(d, s->inverse)),
                             FIELD(pegen_dense, is_f64, describe_i64(d, 0)),
                             FIELD(pegen_dense, schur, describe_i64(d, 0)),
                             FIELD(pegen_dense, generators, describe_null(d)),
                             FIELD(pegen_dense, basis, basis),
                             FIELD(pegen_dense, leaf_blocks, describe_i64(d, s->n_blocks)),
                             FIELD(pegen_dense, leaf_lanes, describe_i64(d, p->turns->lanes)),
                             FIELD(pegen_dense, n_leaves, describe_i64(d, p->turns->n_leaves)),
                             FIELD(pegen_dense, leaves, describe_leaves(d, p->turns)),
                             FIELD(pegen_dense, prepared_bytes, describe_i64(d, emit_prepared_bytes(p->turns))),
                             FIELD(pegen_dense, targets, target_rows(d, targets, n_targets))};
  return describe_global(d, "dense", DESCRIBE(d, pegen_dense, fields), true);
}

const describe_form describe_change_of_basis = {describe, add};
