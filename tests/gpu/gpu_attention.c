/* gpu_attention: outputs of attention on the device against the reference, and against the threads run on the host. */
#include "gpu_attention.h"

#include "device.h"
#include "gpu_moved.h"

#include <stdio.h>

enum { BATCH = 2, ANY_HEADS = 4, ANY_K_HEADS = 2, TOKENS = 77, KEYS = 91, REACH = 24, REACH_OF_POLYNOMIALS = 6 };
static const long double OUTPUT_BOUND = 0x1p-18L;

static attention_trial make_trial(gpu_case *c, number_type type, row_order order, bool causal) {
  const spec *s = c->spec;
  /* Masks have edges, on which only whole numbers stand exactly. */
  static const number_type whole[] = {NUMBER_I32, NUMBER_I64}, real[] = {NUMBER_F32, NUMBER_F64};
  const number_type *types = s->polynomial ? real : whole;
  double reach = s->polynomial ? REACH_OF_POLYNOMIALS : REACH;
  attention_trial t = {.spec = s, .causal = causal};
  attention_sizes sizes = {BATCH, s->heads > 1 ? s->heads : ANY_HEADS, s->heads > 1 ? s->heads : ANY_K_HEADS,
                           TOKENS + s->skip_tokens, KEYS + s->skip_tokens};
  if (s->grid[0]) {
    sizes.tokens = 1;
    for (int axis = 0; axis < s->n_axes; axis++) sizes.tokens *= s->grid[axis];
    sizes.keys = sizes.tokens += s->skip_tokens;
  }
  attention_trial_fill(c->memory, &t, &sizes, type, order, &c->random);
  if (c->calls / 3 % 2)
    t.inputs = trial_random_inputs(c->memory, s, NUMBER_F32, sizes.batch, sizes.heads, sizes.tokens, &c->random);
  t.operands = c->operands[0]; /* float32, as those that are read at computed places must be */
  if (s->grid[0] || !c->kernel->ptx->attention->placed) return t;
  double *values;
  t.positions = gpu_positions(c, 0, sizes.tokens, types[c->calls / 2 % 2], reach, &values);
  t.k_positions = gpu_positions(c, c->calls % 3 ? BATCH : 0, sizes.keys, types[c->calls % 2], reach, &values);
  return t;
}

static int call(gpu_case *c, const attention_trial *t, DLTensor *out) {
  arena *a = c->memory;
  DLTensor *moved[] = {device_upload(a, t->q),
                       device_upload(a, t->k),
                       device_upload(a, t->v),
                       device_upload(a, out),
                       t->positions ? device_upload(a, t->positions) : NULL,
                       t->k_positions ? device_upload(a, t->k_positions) : NULL};
  const DLTensor **inputs = arena_array(a, const DLTensor *, c->spec->n_inputs + 1);
  for (int i = 0; i < c->spec->n_inputs; i++) inputs[i] = device_upload(a, t->inputs.tensors[i]);
  pegen_args args = {.struct_size = sizeof args,
                     .n_operands = c->kernel->n_operands,
                     .q = moved[0],
                     .k = moved[1],
                     .v = moved[2],
                     .out = moved[3],
                     .positions = moved[4],
                     .k_positions = moved[5],
                     .operands = c->device_operands[0],
                     .n_inputs = c->spec->n_inputs,
                     .inputs = inputs,
                     .causal = t->causal,
                     .scale = t->scale};
  int error = gpu_launch_in_workspace(c, "attention", NULL, &args);
  device_download(moved[3], out);
  for (int i = 0; i < 6; i++)
    if (moved[i]) device_free(moved[i]);
  for (int i = 0; i < c->spec->n_inputs; i++) device_free((DLTensor *)inputs[i]);
  return error;
}

static void one(gpu_case *c, number_type type, row_order order, bool causal) {
  attention_trial t = make_trial(c, type, order, causal);
  DLTensor *out = attention_trial_out(c->memory, &t, order), *before = tensor_copy(c->memory, out),
           *host = tensor_copy(c->memory, out);
  c->calls++;
  if (call(c, &t, out)) {
    c->failed++;
    return;
  }
  trial_error worst = {0};
  int64_t step = c->spec->pairwise->rotates ? 29 : 7; /* the reference is slow */
  attention_trial_compare(c->memory, c->kernel, &t, out, step, &worst);
  bool gaps = tensor_gaps_identical(out, before);
  if (worst.spoilt || worst.error > OUTPUT_BOUND || !gaps) {
    c->failed++;
    printf("%s order %d%s: %s%s\n", number_type_info(type)->name, (int)order, causal ? " causal" : "",
           trial_error_text(c->memory, &worst), gaps ? "" : "; bytes between rows were written");
  }
  if (attention_trial_call(c->kernel, &t, host, 1) == 0) c->other_bits += !tensor_identical(host, out);
}

void gpu_attention(gpu_case *c) {
  for (int type = 0; type < NUMBER_CHANNEL_TYPES; type++)
    for (int order = 0; order < ROW_ORDER_COUNT; order++)
      for (int causal = 0; causal < 2; causal++) {
        one(c, (number_type)type, (row_order)order, causal);
        if (!c->spec->polynomial || order || causal != type % 2) continue; /* columns have gradients of all kinds */
        attention_trial t = make_trial(c, (number_type)type, ROWS_BNHD, causal);
        gpu_attention_gains(c, &t);
      }
}
