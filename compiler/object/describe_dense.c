/* object/describe_dense: pegen_dense of exponentials of learned skew matrices: kernel/dense.h; see
 * object/describe_form.h. */
#include "cpu/dense.h"
#include "cpu/exponential.h"
#include "cpu/rotors.h"
#include "object/describe_form.h"
#include "plan/dense.h"

#include "kernel/dense.h"

static void add(digest *h, const void *of) {
  const plan_dense *p = of;
  const spec *s = p->spec;
  int numbers[] = {s->inverse, p->is_f64, s->dense->schur};
  digest_bytes(h, numbers, sizeof numbers);
  digest_bytes(h, &s->amplitude, sizeof s->amplitude);
  for (int i = 0; i < p->n_generators; i++) {
    const spec_skew *g = &p->generator[i];
    int of_axis[] = {g->operand, (int)g->rule, g->n_heads};
    digest_expr(h, p->angle[i]);
    digest_bytes(h, of_axis, sizeof of_axis);
    digest_bytes(h, g->offset, sizeof *g->offset * (size_t)(g->n_heads * s->n_blocks));
  }
}

static LLVMValueRef generators(describer *d, const plan_dense *p) {
  LLVMValueRef rows[SPEC_MAX_AXES];
  for (int k = 0; k < p->n_generators; k++) rows[k] = describe_skew(d, &p->generator[k], p->spec->n_blocks);
  return describe_rows(d, "generators", rows, p->n_generators);
}

static LLVMValueRef target_rows(describer *d, const plan_dense *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  int size = p->spec->n_components;
  for (int i = 0; i < count; i++) {
    const cpu_target *t = targets[i];
    int lanes = t->lanes / (p->is_f64 ? 2 : 1), unit = plan_dense_unit(p, t);
    LLVMValueRef apply[NUMBER_CHANNEL_TYPES], act[NUMBER_CHANNEL_TYPES];
    for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
      apply[dtype] = describe_function(d, emit_apply_name(a, t, dtype));
      act[dtype] = describe_function(d, emit_act_name(a, t, dtype)); /* NULL where there is none */
    }
    const char *form = emit_form_name(a, t, false);
    describe_field fields[] = {
        FIELD(pegen_dense_code, unit, describe_i64(d, unit)),
        FIELD(pegen_dense_code, lanes, describe_i64(d, p->spec->dense->schur || size > DENSE_IN_LANES ? 0 : unit)),
        FIELD(pegen_dense_code, padded, describe_i64(d, (size + lanes - 1) / lanes * lanes)),
        FIELD(pegen_dense_code, prepare, describe_function(d, emit_prepare_name(a, t))),
        FIELD(pegen_dense_code, angles, describe_function(d, emit_angles_name(a, t))),
        FIELD(pegen_dense_code, form, describe_function(d, emit_form_name(a, t, false))),
        FIELD(pegen_dense_code, form_rest, describe_function(d, emit_form_name(a, t, true))),
        FIELD(pegen_dense_code, apply, LLVMConstArray2(d->ptr, apply, NUMBER_CHANNEL_TYPES)),
        FIELD(pegen_dense_code, stream, describe_function(d, emit_stream_name(a, t))),
        FIELD(pegen_dense_code, sum, describe_function(d, arena_printf(a, "%s_sum", form))),
        FIELD(pegen_dense_code, bound, describe_function(d, arena_printf(a, "%s_bound", form))),
        FIELD(pegen_dense_code, act, LLVMConstArray2(d->ptr, act, NUMBER_CHANNEL_TYPES))};
    rows[i] = DESCRIBE(d, pegen_dense_code, fields);
  }
  return describe_rows(d, "targets", rows, count);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan_dense *p = of;
  const spec *s = p->spec;
  describe_field fields[] = {FIELD(pegen_dense, size, describe_i64(d, s->n_components)),
                             FIELD(pegen_dense, n_blocks, describe_i64(d, s->n_blocks)),
                             FIELD(pegen_dense, terms, describe_i64(d, p->n_generators)),
                             FIELD(pegen_dense, angle_lanes, describe_i64(d, plan_dense_angle_lanes(p))),
                             FIELD(pegen_dense, inverse, describe_i64(d, s->inverse)),
                             FIELD(pegen_dense, is_f64, describe_i64(d, p->is_f64)),
                             FIELD(pegen_dense, schur, describe_i64(d, s->dense->schur)),
                             FIELD(pegen_dense, generators, generators(d, p)),
                             FIELD(pegen_dense, basis, describe_null(d)),
                             FIELD(pegen_dense, leaf_blocks, describe_i64(d, s->n_blocks)),
                             FIELD(pegen_dense, leaf_lanes, describe_i64(d, p->angles->lanes)),
                             FIELD(pegen_dense, n_leaves, describe_i64(d, p->angles->n_leaves)),
                             FIELD(pegen_dense, leaves, describe_leaves(d, p->angles)),
                             FIELD(pegen_dense, prepared_bytes, describe_i64(d, emit_prepared_bytes(p->angles))),
                             FIELD(pegen_dense, targets, target_rows(d, p, targets, n_targets))};
  return describe_global(d, "dense", DESCRIBE(d, pegen_dense, fields), true);
}

const describe_form describe_dense = {describe, add};
