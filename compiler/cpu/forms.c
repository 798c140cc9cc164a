/* cpu/forms: the table of emitters; see cpu/forms.h. */
#include "cpu/forms.h"

#include "cpu/attention/attention.h"
#include "cpu/backward.h"
#include "cpu/dense.h"
#include "cpu/dense_backward.h"
#include "cpu/gradient.h"
#include "cpu/rotors.h"
#include "cpu/widen.h"
#include "cpu/widen_backward.h"

typedef struct form_emitter {
  void (*imports)(ir *b); /* NULL: none are needed */
  void (*emit)(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes);
  void (*gradients)(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes);
} form_emitter;

static void attention_imports(ir *b) {
  emit_attention_imports(b);
  emit_encoder_imports(b);
}

static void attention(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes) {
  (void)f;
  const attention_plan *p = attention_plan_forward(a, plan, target);
  emit_attention(b, a, p, target, dtypes);
  if (p->turned) emit_float_encoder(b, a, form_program(a, &form_blades, p->turned, "encode"), target);
}

static void attention_backward(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target,
                               unsigned dtypes) {
  (void)f;
  const attention_plan *p = attention_plan_gradient(a, plan, target), *operands = attention_plan_operands(a, plan),
                       *turned = attention_plan_turned_gradient(a, plan, target);
  emit_attention_gradient(b, a, p, operands, turned, target, dtypes);
}

static void widen(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes) {
  emit_widen(b, a, form_program(a, f, plan, "encode"), target, dtypes);
}

static void widen_backward(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target,
                           unsigned dtypes) {
  (void)f;
  emit_widen_backward(b, a, plan, target, dtypes);
}

static void encode(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes) {
  emit_encoders(b, a, form_program(a, f, plan, "encode"), target, dtypes);
}

/* The program of what encode wrote, which does for what it read; where what was read is needed there is the latter
 * alone. */
static const program *gradient_program(arena *a, const form *f, const void *plan, const spec *s) {
  return form_program(a, f, plan, spec_needs_input(s) ? "encode_backward_from_x" : "encode_backward");
}

static void encode_backward(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target,
                            unsigned dtypes) {
  const struct plan *p = plan;
  const plan_gradient_row *of = plan_gradient_build_row(a, &p, 1);
  if (!plan_is_sum(p)) emit_backward(b, a, form_program(a, f, plan, "encode_transposed"), target, dtypes);
  if (of) emit_gradient(b, a, gradient_program(a, f, plan, p->spec), &p, of, target, dtypes);
}

static void parts_backward(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target,
                           unsigned dtypes) {
  const plan_row *row = plan;
  const struct plan *const *plans = (const struct plan *const *)row->part;
  const plan_gradient_row *of = plan_gradient_build_row(a, plans, row->n_parts);
  emit_backward(b, a, form_program(a, f, plan, "encode_transposed"), target, dtypes);
  if (of) emit_gradient(b, a, gradient_program(a, f, plan, row->spec), plans, of, target, dtypes);
}

static void dense(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes) {
  emit_dense(b, a, form_program(a, f, plan, "encode"), target, dtypes);
}

static void dense_backward(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target,
                           unsigned dtypes) {
  emit_dense_backward(b, a, form_program(a, f, plan, "encode"), target, dtypes);
}

static const form_emitter emitters[FORM_COUNT] = {
    [FORM_ATTENTION] = {attention_imports, attention, attention_backward},
    [FORM_POLYNOMIAL] = {emit_encoder_imports, widen, widen_backward},
    [FORM_ADDITIVE] = {emit_encoder_imports, encode, encode_backward},
    [FORM_PARTS] = {emit_encoder_imports, encode, parts_backward},
    [FORM_BLADES] = {emit_encoder_imports, encode, encode_backward},
    [FORM_ROW_BLADES] = {emit_encoder_imports, encode, encode_backward},
    [FORM_DENSE_FOUR] = {emit_encoder_imports, encode, encode_backward},
    [FORM_SCHUR] = {NULL, dense, dense_backward},
    [FORM_DENSE] = {NULL, dense, dense_backward},
    [FORM_CHANGE_OF_BASIS] = {NULL, dense, dense_backward},
};

void emit_form_imports(ir *b, const form *f) {
  if (emitters[f->kind].imports) emitters[f->kind].imports(b);
}

void emit_form(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes) {
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  emitters[f->kind].emit(b, a, f, plan, target, dtypes);
  b->target_cpu = b->target_features = NULL;
}

void emit_form_gradients(ir *b, arena *a, const form *f, const void *plan, const cpu_target *target, unsigned dtypes) {
  b->target_cpu = target->cpu;
  b->target_features = target->features;
  if (emitters[f->kind].gradients) emitters[f->kind].gradients(b, a, f, plan, target, dtypes);
  b->target_cpu = b->target_features = NULL;
}
