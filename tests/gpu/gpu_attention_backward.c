/* gpu_attention_backward: what attention's gradients are on the device against the reference, and against the threads
 * run on the host. */
#include "gpu_attention.h"

#include "device.h"
#include "gpu_moved.h"

#include <stdio.h>

/* Both entries, whose results come back into g. */
static int call(gpu_case *c, const attention_gradients *g) {
  const spec *s = c->spec;
  const attention_trial *t = &g->forward;
  gpu_moved m = gpu_move_out(c, g);
  DLTensor *in[] = {gpu_upload(c, t->q),   gpu_upload(c, t->k),         gpu_upload(c, t->v),
                    gpu_upload(c, g->out), gpu_upload(c, t->positions), gpu_upload(c, t->k_positions),
                    gpu_upload(c, t->lse), gpu_upload(c, g->g_out),     gpu_upload(c, g->g_lse)};
  enum { COUNT = sizeof in / sizeof *in };
  m.on_device.g_out = in[7];
  m.on_device.g_lse = in[8];
  pegen_grad_args grad = attention_gradients_args(&m.on_device);
  const DLTensor **inputs = arena_array(c->memory, const DLTensor *, s->n_inputs + 1);
  for (int i = 0; i < s->n_inputs; i++) inputs[i] = gpu_upload(c, t->inputs.tensors[i]);
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = s->n_operands,
                     .operands = c->device_operands[0],
                     .n_inputs = s->n_inputs,
                     .inputs = inputs,
                     .q = in[0],
                     .k = in[1],
                     .v = in[2],
                     .out = in[3],
                     .positions = in[4],
                     .k_positions = in[5],
                     .lse = in[6],
                     .causal = t->causal,
                     .scale = t->scale,
                     .grad = &grad};
  int error = gpu_launch_in_workspace(c, "attention_backward", "attention_backward_finish", &args);
  gpu_move_back(c, &m);
  for (int i = 0; i < COUNT; i++)
    if (in[i]) device_free(in[i]);
  for (int i = 0; i < s->n_inputs; i++) device_free((DLTensor *)inputs[i]);
  return error;
}

void gpu_attention_gains(gpu_case *c, const attention_trial *forward) {
  enum { STEP = 7 }; /* the reference is slow */
  arena *a = c->memory;
  number_type type = number_type_of(forward->q->dtype);
  attention_gradients g;
  c->calls++;
  int error = attention_gradients_fill(a, &g, forward, c->kernel, !forward->causal, STEP, ROWS_BNHD, &c->random);
  if (!error && forward->positions) attention_gradients_of_positions(a, &g, NUMBER_F64);
  if (forward->k_positions && forward->k_positions->ndim == 3) g.k_positions = NULL; /* the reference sums batches */
  if (error || call(c, &g)) {
    c->failed++;
    return;
  }
  attention_answer exact = attention_gradients_answer(a, &g, STEP);
  static const char *const names[] = {"q", "k", "v", "inputs", "operands", "positions"};
  trial_error worst[6] = {{0}};
  attention_gradients_compare(g.q, exact.q, exact.score, &worst[0]);
  attention_gradients_compare(g.k, exact.k, exact.score, &worst[1]);
  attention_gradients_compare(g.v, exact.v, exact.score, &worst[2]);
  if (g.inputs) attention_gradients_compare_inputs(&g, &exact, &worst[3]);
  if (g.operands) attention_gradients_compare_operands(&g, &exact, &worst[4]);
  attention_gradients_compare_positions(&g, &exact, &worst[5]);
  long double bound = attention_gradients_bound(&g);
  bool fails = false;
  for (int i = 0; i < 6; i++) {
    if (!worst[i].spoilt && worst[i].error <= bound) continue;
    fails = true;
    printf("gradients of %s, %s%s: %s\n", names[i], number_type_info(type)->name, forward->causal ? " causal" : "",
           trial_error_text(a, &worst[i]));
  }
  c->failed += fails;
  attention_gradients host = attention_gradients_room(a, &g);
  if (attention_gradients_call(c->kernel, &host, 1) == 0) c->other_bits += !attention_gradients_same(&g, &host);
}
