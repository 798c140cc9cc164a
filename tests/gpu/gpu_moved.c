/* gpu_moved: see gpu_moved.h. */
#include "gpu_moved.h"

#include "device.h"
#include "fake_cuda.h"
#include "pegen/cuda.h"

#include "kernel/launch.h"

DLTensor *gpu_upload(gpu_case *c, const DLTensor *host) { return host ? device_upload(c->memory, host) : NULL; }

gpu_moved gpu_move_out(gpu_case *c, const attention_gradients *host) {
  const spec *s = c->spec;
  gpu_moved m = {.host = host};
  attention_gradients *to = &m.on_device;
  to->forward = host->forward;
  to->q = gpu_upload(c, host->q);
  to->k = gpu_upload(c, host->k);
  to->v = gpu_upload(c, host->v);
  if (host->operands) to->operands = arena_array(c->memory, DLTensor *, s->n_operands);
  for (int i = 0; to->operands && i < s->n_operands; i++) to->operands[i] = gpu_upload(c, host->operands[i]);
  if (host->inputs) to->inputs = arena_array(c->memory, DLTensor *, s->n_inputs);
  for (int i = 0; to->inputs && i < s->n_inputs; i++) to->inputs[i] = gpu_upload(c, host->inputs[i]);
  to->positions = gpu_upload(c, host->positions);
  to->k_positions = gpu_upload(c, host->k_positions);
  return m;
}

static void move_one(DLTensor *device, DLTensor *host) {
  if (!device) return;
  device_download(device, host);
  device_free(device);
}

void gpu_move_back(gpu_case *c, const gpu_moved *m) {
  move_one(m->on_device.q, m->host->q);
  move_one(m->on_device.k, m->host->k);
  move_one(m->on_device.v, m->host->v);
  for (int i = 0; m->on_device.operands && i < c->spec->n_operands; i++)
    move_one(m->on_device.operands[i], m->host->operands[i]);
  for (int i = 0; m->on_device.inputs && i < c->spec->n_inputs; i++)
    move_one(m->on_device.inputs[i], m->host->inputs[i]);
  move_one(m->on_device.positions, m->host->positions);
  move_one(m->on_device.k_positions, m->host->k_positions);
}

int gpu_launch_in_workspace(gpu_case *c, const char *entry, const char *finish, pegen_args *args) {
  args->workspace_bytes = pegen_cuda_workspace(c->kernel, entry, args);
  int64_t numbers = (int64_t)(args->workspace_bytes / sizeof(double)) + 1;
  const double *zeros = arena_array(c->memory, double, numbers);
  DLTensor *workspace = gpu_upload(c, tensor_contiguous(c->memory, NUMBER_F64, 1, &numbers, zeros));
  args->workspace = workspace->data;
  fake_cuda_state *fake = device_symbol("fake_cuda");
  int n_parameters = fake ? fake->n_parameters : 0;
  if (fake) fake->n_parameters = PEGEN_PTX_MAX_PARAMETERS; /* other entries have more */
  int error = gpu_launch(c, entry, args);
  if (!error && finish) error = gpu_launch(c, finish, args);
  if (fake) fake->n_parameters = n_parameters;
  device_free(workspace);
  return error;
}
