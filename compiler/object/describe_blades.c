/* object/describe_blades: pegen_blades, of rotors and of sums: kernel/loop.h; see object/describe_form.h. */
#include "cpu/backward.h"
#include "cpu/rotors.h"
#include "object/describe_form.h"
#include "plan/gradient.h"

#include "kernel/loop.h"

static void add(digest *h, const void *of) {
  const plan *p = of;
  if (p->for_threads) p = p->for_threads; /* one of the closed forms, wherever it is computed */
  if (p->spec->pre) digest_expr(h, p->spec->pre);
  for (int i = 0; i < p->spec->n_components * p->spec->n_components; i++) digest_expr(h, p->program->matrix.entry[i]);
}

/* Functions by both types; none where no pair of types is compiled in. */
static LLVMValueRef by_types(describer *d, const cpu_target *target, const char *label,
                             const char *(*name)(arena *, const cpu_target *, int, int)) {
  enum { OTHERS = NUMBER_OUT_TYPES - NUMBER_CHANNEL_TYPES };
  LLVMValueRef encode[NUMBER_CHANNEL_TYPES * OTHERS];
  if (!(d->request->dtypes & number_all_pairs())) return describe_null(d);
  for (int i = 0; i < NUMBER_CHANNEL_TYPES * OTHERS; i++)
    encode[i] = describe_function(d, name(d->request->memory, target, i / OTHERS, NUMBER_CHANNEL_TYPES + i % OTHERS));
  return describe_array(d, label, d->ptr, encode, NUMBER_CHANNEL_TYPES * OTHERS);
}

/* of_tokens: the functions for calls in which heads share inputs. */
static LLVMValueRef named(describer *d, const char *name, bool of_tokens) {
  return describe_function(d, of_tokens ? emit_of_tokens_name(d->request->memory, name) : name);
}

/* Whether rows have code of their own under a target's name: those of gradients have none where they turn as others. */
static bool has_own_rows(describer *d, const cpu_target *target) {
  for (int e = 0; e < NUMBER_CHANNEL_TYPES * 2; e++)
    if (!LLVMIsNull(named(d, emit_encode_name(d->request->memory, target, e / 2, e % 2), false))) return true;
  return false;
}

static LLVMValueRef code_of_rows(describer *d, const cpu_target *target, bool of_tokens) {
  arena *a = d->request->memory;
  LLVMValueRef encode[NUMBER_CHANNEL_TYPES * 2], rounding[PEGEN_ROUNDING_KINDS];
  for (int e = 0; e < NUMBER_CHANNEL_TYPES * 2; e++)
    encode[e] = named(d, emit_encode_name(a, target, e / 2, e % 2), of_tokens);
  for (int e = 0; e < PEGEN_ROUNDING_KINDS; e++)
    rounding[e] = named(d, emit_rounding_encode_name(a, target, e), of_tokens);
  if (LLVMIsNull(rounding[PEGEN_ROUNDING_CACHED]))
    rounding[PEGEN_ROUNDING_CACHED] = rounding[PEGEN_ROUNDING_NORMALISED];
  return DESCRIBE(d, pegen_row_code, F(encode, encode), F(rounding, rounding));
}

/* targets: under whose names what is computed of operands and tokens stands. of_rows: under whose the coefficients of
 * rows do, and the code of rows where it is code of its own. */
static LLVMValueRef target_rows(describer *d, const char *name, const cpu_target *const *targets,
                                const cpu_target *const *of_rows, int count) {
  arena *a = d->request->memory;
  LLVMValueRef rows[TARGET_MAX];
  for (int i = 0; i < count; i++) {
    const cpu_target *turning = has_own_rows(d, of_rows[i]) ? of_rows[i] : targets[i];
    rows[i] = DESCRIBE(d, pegen_target_code, CODE(prepare, emit_prepare_name(a, targets[i])),
                       F(rows, code_of_rows(d, turning, false)), F(of_tokens, code_of_rows(d, turning, true)),
                       CODE(values, emit_values_name(a, targets[i])),
                       F(converting, by_types(d, of_rows[i], "converting", emit_converting_name)),
                       CODE(rotor, emit_rotor_name(a, of_rows[i])), CODE(rotor_own, emit_rotor_own_name(a, of_rows[i])),
                       CODE(unfold, emit_unfold_name(a, of_rows[i])), CODES(norm, emit_norm_name, targets[i]),
                       F(convert, by_types(d, targets[i], "convert", emit_convert_name)));
  }
  return describe_rows(d, name, rows, count);
}

/* Rows' gradients: the same by transposed matrices. */
static LLVMValueRef backward_rows(describer *d, const cpu_target *const *targets, int count) {
  const cpu_target *back[TARGET_MAX];
  if (!describe_gains(d) || d->request->form->kind == FORM_ADDITIVE) return describe_null(d);
  for (int i = 0; i < count; i++) back[i] = emit_backward_target(d->request->memory, targets[i]);
  return target_rows(d, "backward", targets, back, count);
}

static LLVMValueRef describe_parts_of(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan_row *row = of;
  int64_t blocks = 0, leaves = 0, prepared = 0, values = 0;
  for (int i = 0; i < row->n_parts; i++) {
    const plan *p = row->part[i];
    if (p->spec->n_blocks > blocks) blocks = p->spec->n_blocks;
    leaves += p->n_leaves;
    prepared += emit_prepared_bytes(p);
    values += emit_values_bytes(p);
  }
  const plan *const *plans = (const plan *const *)row->part;
  LLVMValueRef list = describe_leaves_of(d, plans, row->n_parts, (int)blocks);
  const plan_gradient_row *gains =
      describe_gains(d) ? plan_gradient_build_row(d->request->memory, plans, row->n_parts) : NULL;
  return describe_global(
      d, "blades",
      DESCRIBE(d, pegen_blades, F(n_blocks, blocks), F(lanes, row->part[0]->lanes), F(n_leaves, leaves),
               F(leaves, list), F(prepared_bytes, prepared),
               F(targets, target_rows(d, "targets", targets, targets, n_targets)), F(values_bytes, values),
               F(backward, backward_rows(d, targets, n_targets)),
               F(gradient, describe_gradient_row(d, row->spec, gains, (int)blocks, targets, n_targets)), F(is_sum, 0)),
      true);
}

static void add_parts(digest *h, const void *of) {
  static const char kind[] = "parts";
  const plan_row *row = of;
  digest_bytes(h, kind, sizeof kind);
  for (int i = 0; i < row->n_parts; i++) {
    const spec *s = row->part[i]->spec;
    int sizes[] = {s->n_components, s->n_blocks};
    digest_expressions_of(h, s->pool);
    digest_bytes(h, sizes, sizeof sizes);
    digest_bytes(h, s->channel, sizeof(int) * (size_t)(s->n_components * s->n_blocks));
    digest_bytes(h, row->spec->part[i].axis, sizeof(int) * (size_t)s->n_axes);
    add(h, row->part[i]);
  }
}

static LLVMValueRef describe(describer *d, const void *of, const cpu_target *const *targets, int n_targets) {
  const plan *p = of;
  const plan_gradient *of_gradient = describe_gains(d) ? plan_gradient_build(d->request->memory, p) : NULL;
  return describe_global(
      d, "blades",
      DESCRIBE(d, pegen_blades, F(n_blocks, p->spec->n_blocks), F(lanes, p->lanes), F(n_leaves, p->n_leaves),
               F(leaves, describe_leaves(d, p)), F(prepared_bytes, emit_prepared_bytes(p)),
               F(targets, target_rows(d, "targets", targets, targets, n_targets)),
               F(values_bytes, emit_values_bytes(p)), F(backward, backward_rows(d, targets, n_targets)),
               F(gradient, describe_gradient(d, of_gradient, targets, n_targets)),
               F(is_sum, d->request->form->kind == FORM_ADDITIVE)),
      true);
}

static void add_sum(digest *h, const void *of) {
  static const char kind[] = "sum";
  digest_bytes(h, kind, sizeof kind);
  add(h, of);
}

const describe_form describe_blades = {describe, add};
const describe_form describe_parts = {describe_parts_of, add_parts};
const describe_form describe_additive = {describe, add_sum};
