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

/* Functions of the program of encode; or of what else the plan holds. */
typedef void program_emitter(ir *b, arena *a, const program *encode, const cpu_target *target, unsigned dtypes);
typedef void plan_emitter(const form_emission *e);

typedef struct form_emitter {
  void (*imports)(ir *b); /* NULL: none are needed */
  /* A row has one of either pair. */
  program_emitter *of_encode, *gradients_of_encode;
  plan_emitter *of_plan, *gradients_of_plan;
  plan_emitter *tangents_of_plan; /* NULL: there are none */
} form_emitter;

static const program *program_of(const form_emission *e, const char *word) {
  return form_program(e->a, e->f, e->plan, word);
}

static void attention_imports(ir *b) {
  emit_attention_imports(b);
  emit_encoder_imports(b);
}

static void attention(const form_emission *e) {
  const attention_plan *p = attention_plan_forward(e->a, e->plan, e->target);
  emit_attention(e->b, e->a, p, e->target, e->dtypes);
  if (p->turned) emit_float_encoder(e->b, e->a, form_program(e->a, &form_blades, p->turned, "encode"), e->target);
}

static void attention_backward(const form_emission *e) {
  const attention_plan *p = attention_plan_gradient(e->a, e->plan, e->target),
                       *operands = attention_plan_operands(e->a, e->plan),
                       *turned = attention_plan_turned_gradient(e->a, e->plan, e->target);
  emit_attention_gradient(e->b, e->a, p, operands, turned, e->target, e->dtypes);
}

static void attention_tangent(const form_emission *e) {
  const attention_plan *turned = attention_plan_turned_gradient(e->a, e->plan, e->target),
                       *p = turned ? turned : attention_plan_gradient(e->a, e->plan, e->target);
  emit_attention_tangent(e->b, e->a, p, e->target, e->dtypes);
}

static void widen_backward(const form_emission *e) { emit_widen_backward(e->b, e->a, e->plan, e->target, e->dtypes); }

/* The program of what encode wrote does for what it read, too. Where gradients need what was read, it is of that. */
static void rows_backward(const form_emission *e, const spec *s, const plan *const *plans, int n_plans) {
  const plan_gradient_row *of = plan_gradient_build_row(e->a, plans, n_plans);
  if (!plan_is_sum(plans[0])) emit_backward(e->b, e->a, program_of(e, "encode_transposed"), e->target, e->dtypes);
  if (!of) return;
  const program *gradient = program_of(e, spec_needs_input(s) ? "encode_backward_from_x" : "encode_backward");
  emit_gradient(e->b, e->a, gradient, plans, of, e->target, e->dtypes);
}

static void encode_backward(const form_emission *e) {
  const plan *p = e->plan;
  rows_backward(e, p->spec, &p, 1);
}

static void parts_backward(const form_emission *e) {
  const plan_row *row = e->plan;
  rows_backward(e, row->spec, (const plan *const *)row->part, row->n_parts);
}

static const form_emitter emitters[FORM_COUNT] = {
    [FORM_ATTENTION] = {attention_imports, .of_plan = attention, .gradients_of_plan = attention_backward,
                        .tangents_of_plan = attention_tangent},
    [FORM_POLYNOMIAL] = {emit_encoder_imports, emit_widen, .gradients_of_plan = widen_backward},
    [FORM_ADDITIVE] = {emit_encoder_imports, emit_encoders, .gradients_of_plan = encode_backward},
    [FORM_PARTS] = {emit_encoder_imports, emit_encoders, .gradients_of_plan = parts_backward},
    [FORM_BLADES] = {emit_encoder_imports, emit_encoders, .gradients_of_plan = encode_backward},
    [FORM_ROW_BLADES] = {emit_encoder_imports, emit_encoders, .gradients_of_plan = encode_backward},
    [FORM_DENSE_FOUR] = {emit_encoder_imports, emit_encoders, .gradients_of_plan = encode_backward},
    [FORM_SCHUR] = {NULL, emit_dense, emit_dense_backward},
    [FORM_DENSE] = {NULL, emit_dense, emit_dense_backward},
    [FORM_CHANGE_OF_BASIS] = {NULL, emit_dense, emit_dense_backward},
};

void emit_form_imports(ir *b, const form *f) {
  if (emitters[f->kind].imports) emitters[f->kind].imports(b);
}

static void emit(const form_emission *e, program_emitter *of_encode, plan_emitter *of_plan) {
  e->b->target_cpu = e->target->cpu;
  e->b->target_features = e->target->features;
  if (of_plan) of_plan(e);
  else of_encode(e->b, e->a, program_of(e, "encode"), e->target, e->dtypes);
  e->b->target_cpu = e->b->target_features = NULL;
}

void emit_form(const form_emission *e) { emit(e, emitters[e->f->kind].of_encode, emitters[e->f->kind].of_plan); }

void emit_form_gradients(const form_emission *e) {
  emit(e, emitters[e->f->kind].gradients_of_encode, emitters[e->f->kind].gradients_of_plan);
}

void emit_form_tangents(const form_emission *e) {
  if (emitters[e->f->kind].tangents_of_plan) emit(e, NULL, emitters[e->f->kind].tangents_of_plan);
}
