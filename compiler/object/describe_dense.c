/* object/describe_dense: pegen_dense of programs whose rows are multiplied with matrices, exponentials of learned skew
 * ones or those of a change of basis: kernel/dense.h; see object/describe_form.h. */
#include "cpu/basis_adjoint.h"
#include "cpu/dense.h"
#include "cpu/dense_backward.h"
#include "cpu/rotors.h"
#include "cpu/schedule.h"
#include "object/describe_form.h"
#include "plan/change_of_basis.h"
#include "plan/dense.h"

#include "kernel/dense.h"

static void add(digest *h, const void *of) {
  const plan_dense *p = of;
  const spec *s = p->spec;
  int numbers[] = {s->inverse, p->is_f64, (int)s->dense->map};
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

static void add_change_of_basis(digest *h, const void *of) {
  const plan_basis *p = of;
  const spec *s = p->spec;
  const spec_skew *m = &s->basis->matrix;
  int numbers[] = {s->inverse, m->operand, (int)m->rule, m->n_heads};
  digest_bytes(h, numbers, sizeof numbers);
  digest_bytes(h, m->offset, sizeof *m->offset * (size_t)m->n_heads);
  for (int i = 0; i < s->n_components * s->n_components; i++) digest_expr(h, p->turns->program->matrix.entry[i]);
}

static LLVMValueRef target_row(describer *d, const program *encode, const cpu_target *t) {
  arena *a = d->request->memory;
  dense_shape shape = dense_shape_of(a, encode, t);
  int size = shape.matrix->blocks.size, lanes = t->lanes / (shape.matrix->skew.in_f64 ? 2 : 1);
  bool is_product = shape.matrix->skew.source == SOURCE_PRODUCT;
  LLVMValueRef apply[NUMBER_CHANNEL_TYPES], act[NUMBER_CHANNEL_TYPES], wedge[NUMBER_CHANNEL_TYPES];
  const plan_gradient *of_angles = d->request->gradients ? dense_gradient_of(a, encode, &shape) : NULL;
  gradient_code gains = dense_gradient_code(a, of_angles, t);
  const char *gain = of_angles ? emit_gain_name(&gains, TORQUE_OF_Y) : "", *adjoint = emit_adjoint_of(a, &shape, t);
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    apply[dtype] = describe_function(d, emit_apply_name(a, t, dtype));
    act[dtype] = describe_function(d, emit_act_name(a, t, dtype)); /* NULL where there is none */
    wedge[dtype] = describe_function(d, emit_wedge_name(a, t, dtype));
  }
  const char *name = emit_matrix_name(a, t, false), *back = emit_turned_back_name(a, program_plan(encode), t);
  describe_field fields[] = {
      FIELD(pegen_dense_code, unit, describe_i64(d, shape.unit)),
      FIELD(pegen_dense_code, lanes, describe_i64(d, shape.in_lanes ? shape.unit : 0)),
      FIELD(pegen_dense_code, padded, describe_i64(d, (size + lanes - 1) / lanes * lanes)),
      FIELD(pegen_dense_code, prepare, describe_function(d, emit_prepare_name(a, t))),
      FIELD(pegen_dense_code, angles, describe_function(d, emit_angles_name(a, &shape, t))),
      FIELD(pegen_dense_code, back, is_product ? describe_function(d, back) : describe_null(d)),
      FIELD(pegen_dense_code, matrix, describe_function(d, name)),
      FIELD(pegen_dense_code, matrix_rest, describe_function(d, emit_matrix_name(a, t, true))),
      FIELD(pegen_dense_code, apply, LLVMConstArray2(d->ptr, apply, NUMBER_CHANNEL_TYPES)),
      FIELD(pegen_dense_code, transpose, describe_function(d, emit_transpose_name(a, t))),
      FIELD(pegen_dense_code, wedge, LLVMConstArray2(d->ptr, wedge, NUMBER_CHANNEL_TYPES)),
      FIELD(pegen_dense_code, adjoint, describe_function(d, arena_printf(a, "%s_adjoint", adjoint))),
      FIELD(pegen_dense_code, turn, describe_function(d, arena_printf(a, "%s_turn", adjoint))),
      FIELD(pegen_dense_code, gain, describe_function(d, gain)),
      FIELD(pegen_dense_code, collect, describe_function(d, emit_collect_name(a, t))),
      FIELD(pegen_dense_code, stream, describe_function(d, emit_stream_name(a, t))),
      FIELD(pegen_dense_code, sum, describe_function(d, arena_printf(a, "%s_sum", name))),
      FIELD(pegen_dense_code, bound, describe_function(d, arena_printf(a, "%s_bound", name))),
      FIELD(pegen_dense_code, act, LLVMConstArray2(d->ptr, act, NUMBER_CHANNEL_TYPES))};
  return DESCRIBE(d, pegen_dense_code, fields);
}

/* The skew matrices that a token's are sums of. */
static LLVMValueRef generators(describer *d, const program_op *matrix) {
  LLVMValueRef rows[SPEC_MAX_AXES];
  int count = matrix->skew.count;
  for (int k = 0; k < count; k++) rows[k] = describe_skew(d, &matrix->skew.of[k], matrix->blocks.count);
  return describe_rows(d, "generators", rows, count);
}

/* The one that all tokens share in a product. */
static LLVMValueRef basis(describer *d, const program *encode, const program_op *matrix) {
  if (matrix->skew.source != SOURCE_PRODUCT) return describe_null(d);
  const program_op *second = encode->value[matrix->argument[1]].maker;
  return describe_global(d, "basis", describe_skew(d, second->skew.of, 1), true);
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  arena *a = d->request->memory;
  const program *encode = form_program(a, d->request->form, of, "encode"), *scheduled = cpu_schedule(a, encode);
  const plan *p = program_plan(encode);
  LLVMValueRef rows[TARGET_MAX];
  dense_shape shape = dense_shape_of(a, scheduled, targets[0]);
  int64_t angle_bytes = 0; /* the most of all targets, of turns also of those that go back */
  for (int i = 0; i < n_targets; i++) {
    int64_t bytes = dense_shape_of(a, scheduled, targets[i]).angle_bytes;
    if (bytes > angle_bytes) angle_bytes = bytes;
    if (shape.matrix->skew.source != SOURCE_PRODUCT || !d->request->gradients) continue;
    bytes = emit_turned_back_bytes(a, p, targets[i]);
    if (bytes > angle_bytes) angle_bytes = bytes;
  }
  const program_op *matrix = shape.matrix;
  int terms = matrix->skew.count ? matrix->skew.count : 1;
  bool is_product = matrix->skew.source == SOURCE_PRODUCT;
  const plan_gradient *of_angles = d->request->gradients ? dense_gradient_of(a, scheduled, &shape) : NULL;
  LLVMValueRef of_basis = basis(d, scheduled, matrix), of_generators = generators(d, matrix),
               leaves = describe_leaves(d, p);
  for (int i = 0; i < n_targets; i++) rows[i] = target_row(d, scheduled, targets[i]);
  describe_field fields[] = {
      FIELD(pegen_dense, size, describe_i64(d, matrix->blocks.size)),
      FIELD(pegen_dense, n_blocks, describe_i64(d, matrix->blocks.count)),
      FIELD(pegen_dense, terms, describe_i64(d, terms)),
      FIELD(pegen_dense, angle_lanes, describe_i64(d, (angle_bytes + 7) / 8)),
      FIELD(pegen_dense, gain_terms,
            describe_i64(d, !is_product ? terms
                            : of_angles ? of_angles->n_torques
                                        : 0)),
      FIELD(pegen_dense, gain_lanes, describe_i64(d, is_product ? p->lanes : (angle_bytes + 7) / 8)),
      FIELD(pegen_dense, inverse, describe_i64(d, shape.apply->transposed)),
      FIELD(pegen_dense, is_f64, describe_i64(d, matrix->skew.in_f64)),
      FIELD(pegen_dense, schur, describe_i64(d, matrix->skew.source == SOURCE_SCHUR)),
      FIELD(pegen_dense, generators, of_generators),
      FIELD(pegen_dense, basis, of_basis),
      FIELD(pegen_dense, leaf_blocks, describe_i64(d, p->spec->n_blocks)),
      FIELD(pegen_dense, leaf_lanes, describe_i64(d, p->lanes)),
      FIELD(pegen_dense, n_leaves, describe_i64(d, p->n_leaves)),
      FIELD(pegen_dense, leaves, leaves),
      FIELD(pegen_dense, prepared_bytes, describe_i64(d, emit_prepared_bytes(p))),
      FIELD(pegen_dense, gradient, describe_gradient(d, of_angles, targets, n_targets)),
      FIELD(pegen_dense, targets, describe_rows(d, "targets", rows, n_targets))};
  return describe_global(d, "dense", DESCRIBE(d, pegen_dense, fields), true);
}

const describe_form describe_dense = {describe, add};
const describe_form describe_change_of_basis = {describe, add_change_of_basis};
