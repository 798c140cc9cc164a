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
  const plan_gradient *of_angles = describe_gains(d) ? dense_gradient_of(a, encode, &shape) : NULL;
  gradient_code gains = dense_gradient_code(a, of_angles, t);
  const char *gain = of_angles ? emit_gain_name(&gains, TORQUE_OF_Y) : "", *adjoint = emit_adjoint_of(a, &shape, t);
  const char *name = emit_matrix_name(a, t, false), *back = emit_turned_back_name(a, program_plan(encode), t);
  return DESCRIBE(d, pegen_dense_code, F(unit, shape.unit), F(lanes, shape.in_lanes ? shape.unit : 0),
                  F(padded, (size + lanes - 1) / lanes * lanes), CODE(prepare, emit_prepare_name(a, t)),
                  CODE(angles, emit_angles_name(a, &shape, t)), CODE(back, is_product ? back : NULL),
                  CODE(matrix, name), CODE(matrix_rest, emit_matrix_name(a, t, true)), CODES(apply, emit_apply_name, t),
                  CODE(transpose, emit_transpose_name(a, t)), CODES(wedge, emit_wedge_name, t),
                  CODE(adjoint, arena_printf(a, "%s_adjoint", adjoint)),
                  CODE(turn, arena_printf(a, "%s_turn", adjoint)), CODE(gain, gain),
                  CODE(collect, emit_collect_name(a, t)), CODE(stream, emit_stream_name(a, t)),
                  CODE(rounding, emit_rounding_apply_name(a, t)), CODE(sum, arena_printf(a, "%s_sum", name)),
                  CODE(bound, arena_printf(a, "%s_bound", name)), CODES(act, emit_act_name, t));
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
    if (shape.matrix->skew.source != SOURCE_PRODUCT || !describe_gains(d)) continue;
    bytes = emit_turned_back_bytes(a, p, targets[i]);
    if (bytes > angle_bytes) angle_bytes = bytes;
  }
  const program_op *matrix = shape.matrix;
  int terms = matrix->skew.count ? matrix->skew.count : 1;
  bool is_product = matrix->skew.source == SOURCE_PRODUCT;
  const plan_gradient *of_angles = describe_gains(d) ? dense_gradient_of(a, scheduled, &shape) : NULL;
  LLVMValueRef of_basis = basis(d, scheduled, matrix), of_generators = generators(d, matrix),
               leaves = describe_leaves(d, p);
  for (int i = 0; i < n_targets; i++) rows[i] = target_row(d, scheduled, targets[i]);
  return describe_global(d, "dense",
                         DESCRIBE(d, pegen_dense, F(size, matrix->blocks.size), F(n_blocks, matrix->blocks.count),
                                  F(terms, terms), F(angle_lanes, (angle_bytes + 7) / 8),
                                  F(gain_terms, !is_product ? terms
                                                : of_angles ? of_angles->n_torques
                                                            : 0),
                                  F(gain_lanes, is_product ? p->lanes : (angle_bytes + 7) / 8),
                                  F(inverse, shape.apply->transposed), F(is_f64, matrix->skew.in_f64),
                                  F(schur, matrix->skew.source == SOURCE_SCHUR), F(generators, of_generators),
                                  F(basis, of_basis), F(leaf_blocks, p->spec->n_blocks), F(leaf_lanes, p->lanes),
                                  F(n_leaves, p->n_leaves), F(leaves, leaves),
                                  F(prepared_bytes, emit_prepared_bytes(p)),
                                  F(gradient, describe_gradient(d, of_angles, targets, n_targets)),
                                  F(targets, describe_rows(d, "targets", rows, n_targets))),
                         true);
}

const describe_form describe_dense = {describe, add};
const describe_form describe_change_of_basis = {describe, add_change_of_basis};
