/* gpu_widen: rows that are widened by columns on the device: their scores against the definition, what they gain, and
 * their bits against the threads run on the host. */
#include "gpu_case.h"

#include "device.h"
#include "gpu_moved.h"
#include "verify/trial_widen_backward.h"

#include <math.h>
#include <stdio.h>

enum { BATCH = 2, ANY_HEADS = 4, ANY_K_HEADS = 2, TOKENS = 29, K_TOKENS = 37 };

static const double *random_places(gpu_case *c, int64_t tokens) {
  const spec *s = c->spec;
  double *values = arena_array(c->memory, double, tokens * s->n_axes), away = s->polynomial->has_call_origin ? 1e5 : 0;
  for (int64_t i = 0; i < tokens * s->n_axes; i++)
    values[i] = s->polynomial->origin[i % s->n_axes] + away + random_uniform(&c->random, -7, 7);
  return values;
}

/* which: 1 q, 2 k, 3 both. */
static int call(gpu_case *c, const widen_trial *t, DLTensor *q_out, DLTensor *k_out, int which) {
  const spec *s = c->spec;
  DLTensor *moved[] = {gpu_upload(c, t->q),
                       gpu_upload(c, t->k),
                       gpu_upload(c, q_out),
                       gpu_upload(c, k_out),
                       gpu_upload(c, t->positions),
                       gpu_upload(c, t->k_positions),
                       which == 3 ? NULL : gpu_upload(c, t->origin)};
  const DLTensor **inputs = arena_array(c->memory, const DLTensor *, s->n_inputs + 1),
                 **operands = arena_array(c->memory, const DLTensor *, s->n_operands + 1);
  for (int i = 0; i < s->n_inputs; i++) inputs[i] = gpu_upload(c, t->inputs.tensors[i]);
  for (int i = 0; i < s->n_operands; i++) operands[i] = gpu_upload(c, t->operands.tensors[i]);
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = s->n_operands,
                     .operands = operands,
                     .n_inputs = s->n_inputs,
                     .inputs = inputs,
                     .q = which & 1 ? moved[0] : NULL,
                     .k = which & 2 ? moved[1] : NULL,
                     .q_out = which & 1 ? moved[2] : NULL,
                     .k_out = which & 2 ? moved[3] : NULL,
                     .positions = moved[4],
                     .k_positions = moved[5],
                     .origin = moved[6]};
  int error = gpu_launch(c, "encode", &args);
  if (which & 1) device_download(moved[2], q_out);
  if (which & 2) device_download(moved[3], k_out);
  for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
    if (moved[i]) device_free(moved[i]);
  for (int i = 0; i < s->n_inputs; i++) device_free((DLTensor *)inputs[i]);
  for (int i = 0; i < s->n_operands; i++) device_free((DLTensor *)operands[i]);
  return error;
}

/* apart: k has positions of its own, and another number of tokens. */
static widen_trial trial_of(gpu_case *c, number_type type, number_type input_type, row_order order, bool apart) {
  const spec *s = c->spec;
  widen_shape shape = {BATCH, s->heads > 1 ? s->heads : ANY_HEADS, s->heads > 1 ? s->heads : ANY_K_HEADS,
                       TOKENS + s->skip_tokens, K_TOKENS + s->skip_tokens};
  if (!apart) shape.k_tokens = shape.tokens;
  return widen_trial_create(c->memory, s, c->kernel, type, input_type, order, &shape, random_places(c, shape.tokens),
                            apart ? random_places(c, shape.k_tokens) : NULL, &c->random);
}

static void one(gpu_case *c, number_type type, number_type input_type, row_order order, bool apart) {
  const spec *s = c->spec;
  widen_trial t = trial_of(c, type, input_type, order, apart);
  DLTensor *q_out = tensor_copy(c->memory, t.q_out), *k_out = tensor_copy(c->memory, t.k_out),
           *q_host = tensor_copy(c->memory, q_out), *k_host = tensor_copy(c->memory, k_out);
  c->calls++;
  if (apart ? call(c, &t, q_out, k_out, 1) || call(c, &t, q_out, k_out, 2) : call(c, &t, q_out, k_out, 3)) {
    c->failed++;
    return;
  }
  trial_error worst = {0};
  widen_trial_compare(&t, q_out, k_out, &worst);
  bool gaps = tensor_gaps_identical(q_out, t.q_out) && tensor_gaps_identical(k_out, t.k_out);
  if (worst.spoilt || worst.error > widen_trial_bound(s, type) || !gaps) {
    c->failed++;
    printf("%s, inputs %s, order %d: %s%s\n", number_type_info(type)->name, number_type_info(input_type)->name,
           (int)order, trial_error_text(c->memory, &worst), gaps ? "" : "; bytes between rows were written");
  }
  if (widen_trial_call(c->kernel, &t, q_host, k_host, 3, 1) == 0)
    c->other_bits += !tensor_identical(q_host, q_out) || !tensor_identical(k_host, k_out);
}

/* ---- gradients ---- */

/* pegen_launch of both entries, whose results come back into g->out. */
static int call_backward(gpu_case *c, const widen_gradients *g) {
  const spec *s = c->spec;
  const widen_trial *t = &g->forward;
  gpu_moved m = gpu_move_out(c, &g->out);
  pegen_grad_args grad = attention_gradients_args(&m.on_device);
  DLTensor *in[] = {gpu_upload(c, g->q_out), gpu_upload(c, g->k_out), gpu_upload(c, t->positions),
                    gpu_upload(c, t->k_positions)};
  const DLTensor **inputs = arena_array(c->memory, const DLTensor *, s->n_inputs + 1),
                 **operands = arena_array(c->memory, const DLTensor *, s->n_operands + 1);
  for (int i = 0; i < s->n_inputs; i++) inputs[i] = gpu_upload(c, t->inputs.tensors[i]);
  for (int i = 0; i < s->n_operands; i++) operands[i] = gpu_upload(c, t->operands.tensors[i]);
  grad.q_out = in[0];
  grad.k_out = in[1];
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = s->n_operands,
                     .operands = operands,
                     .n_inputs = s->n_inputs,
                     .inputs = inputs,
                     .positions = in[2],
                     .k_positions = in[3],
                     .grad = &grad};
  int error = gpu_launch_in_workspace(c, "encode_backward", s->n_operands > 0 ? "encode_backward_finish" : NULL, &args);
  gpu_move_back(c, &m);
  for (int i = 0; i < 4; i++)
    if (in[i]) device_free(in[i]);
  for (int i = 0; i < s->n_inputs; i++) device_free((DLTensor *)inputs[i]);
  for (int i = 0; i < s->n_operands; i++) device_free((DLTensor *)operands[i]);
  return error;
}

static void gains(gpu_case *c, number_type type, number_type input_type, row_order order, bool apart) {
  widen_trial t = trial_of(c, type, input_type, order, apart);
  widen_gradients g;
  c->calls++;
  if (widen_gradients_fill(c->memory, &g, &t, c->kernel, 1, order, &c->random) || call_backward(c, &g)) {
    c->failed++;
    return;
  }
  attention_answer exact = widen_gradients_answer(c->memory, &g);
  trial_error worst = {0};
  attention_gradients_compare(g.out.q, exact.q, 1, &worst);
  attention_gradients_compare(g.out.k, exact.k, 1, &worst);
  if (g.out.inputs) attention_gradients_compare_inputs(&g.out, &exact, &worst);
  if (g.out.operands) attention_gradients_compare_operands(&g.out, &exact, &worst);
  attention_gradients_compare_positions(&g.out, &exact, &worst);
  if (worst.spoilt || !(worst.error <= widen_gradients_bound(type))) {
    c->failed++;
    printf("gradients, %s, inputs %s, order %d: %s, error %.3Lg\n", number_type_info(type)->name,
           number_type_info(input_type)->name, (int)order, trial_error_text(c->memory, &worst), worst.error);
  }
  attention_gradients host = attention_gradients_room(c->memory, &g.out);
  if (widen_gradients_call(c->kernel, &g, &host, 0, 1) == 0) c->other_bits += !attention_gradients_same(&g.out, &host);
}

void gpu_widen(gpu_case *c) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    for (int order = 0; order < ROW_ORDER_COUNT; order++)
      for (int apart = 0; apart < 2; apart++) {
        number_type input_type = (type + order) % 2 ? NUMBER_F32 : (number_type)type;
        one(c, (number_type)type, input_type, (row_order)order, apart);
        if (order == 0) gains(c, (number_type)type, input_type, (row_order)order, apart);
      }
}
