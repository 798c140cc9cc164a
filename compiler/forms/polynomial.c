/* forms/polynomial: a bias polynomial in the displacement, reproduced by columns that widen q and k; see forms/form.h.
 *
 *   spec -> polynomial (weights and shapes) -> plan_widen (columns) -> emit_widen
 */
#include "cpu/rotors.h"
#include "cpu/widen.h"
#include "forms/form.h"
#include "gpu/widen.h"
#include "plan/widen.h"

#include "kernel/loop.h"

static bool takes(const spec *s) { return s->polynomial && !s->pairwise; }

static void *build(arena *a, const spec *s) { return plan_widen_build(a, s); }

static void print(FILE *out, const void *plan) { plan_widen_print(out, plan); }

static void emit(ir *b, arena *a, const void *plan, const cpu_target *target, unsigned dtypes) {
  emit_widen(b, a, plan, target, dtypes);
}

static int per_head(const void *of) {
  const plan_widen *p = of;
  return p->values->per_head ? PEGEN_PER_HEAD_QUERIES : PEGEN_PER_HEAD_NONE;
}

static void hash(describe_hash *h, const void *of) {
  const plan_widen *p = of;
  const spec_polynomial *bias = p->spec->polynomial;
  describe_hash_expr(h, bias->value);
  describe_hash_bytes(h, bias->origin, sizeof bias->origin);
  bool flags[] = {bias->exact_scores, bias->split_columns};
  describe_hash_bytes(h, flags, sizeof flags);
}

static int out_dim(arena *a, const void *of, int dtype, const char ***columns) {
  const plan_widen *p = of;
  const widen_layout *l = &p->layout[dtype];
  *columns = arena_array(a, const char *, l->n_lanes + 1);
  for (int i = 0; i < l->n_lanes; i++) (*columns)[i] = plan_widen_lane_text(a, p, l, i);
  return l->out_dim;
}

/* ---- pegen_widen ---- */

static LLVMValueRef target_rows(describer *d, const plan_widen *p, const cpu_target *const *targets, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    LLVMValueRef widen[NUMBER_CHANNEL_TYPES * 4];
    for (int f = 0; f < NUMBER_CHANNEL_TYPES * 4; f++) {
      bool wide = f / 2 % 2 && p->spec->n_inputs > 0;
      widen[f] = describe_function(d, emit_widen_name(a, targets[i], f / 4, wide, f % 2));
    }
    describe_field fields[] = {
        FIELD(pegen_widen_code, prepare, describe_function(d, emit_prepare_name(a, targets[i]))),
        FIELD(pegen_widen_code, widen, LLVMConstArray2(d->ptr, widen, NUMBER_CHANNEL_TYPES * 4))};
    rows[i] = DESCRIBE(d, pegen_widen_code, fields);
  }
  return describe_array(d, "targets", LLVMTypeOf(rows[0]), rows, count);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan_widen *p = of;
  describe_field fields[] = {FIELD(pegen_widen, n_blocks, describe_i64(d, p->spec->n_blocks)),
                             FIELD(pegen_widen, lanes, describe_i64(d, p->values->lanes)),
                             FIELD(pegen_widen, n_leaves, describe_i64(d, p->values->n_leaves)),
                             FIELD(pegen_widen, leaves, describe_leaves(d, p->values)),
                             FIELD(pegen_widen, prepared_bytes, describe_i64(d, emit_prepared_bytes(p->values))),
                             FIELD(pegen_widen, targets, target_rows(d, p, targets, n_targets))};
  return describe_global(d, "widen", DESCRIBE(d, pegen_widen, fields), true);
}

static const gpu_program *gpu(arena *a, const void *plan, unsigned dtypes) {
  return gpu_widen_program(a, plan, dtypes);
}

const form form_polynomial = {
    .kind = FORM_POLYNOMIAL,
    .name = "polynomial",
    .entries = {.encode = "pegen_driver_widen", .workspace = "pegen_driver_workspace"},
    .takes = takes,
    .plan = build,
    .print = print,
    .imports = emit_cpu_imports,
    .emit_cpu = emit,
    .describe = describe,
    .per_head = per_head,
    .hash = hash,
    .out_dim = out_dim,
    .gpu = gpu,
};
