/* bench/attention_gpu: attention on an NVIDIA device, launched as programs launch it (pegen/cuda.h) and timed by the
 * device's events; see bench/attention_machine.h.
 *
 * A tensor of the host is copied to the device when a call first names it, and a call's arguments are kept, so that
 * what is timed are launches. Copies of k and v are cycled, so that no call finds them in the L2 cache. Keys of few
 * queries are split over blocks, with a workspace.
 */
#include "base/diag.h"
#include "bench/attention_machine.h"
#include "bench/peak_gpu.h"
#include "bench/shapes.h"
#include "pegen/cuda.h"

enum { MOST_SETS = 64, MOST_CALLS = 64 /* of a sample */ };
static const double SAMPLE_SECONDS = 20e-3;
static const size_t CYCLED_BYTES = (size_t)512 << 20; /* several times the largest L2 cache */
static const size_t COPIED_BYTES = (size_t)256 << 20; /* by one copy, of the limit */

typedef struct block {
  struct block *next;
  cuda_address address;
} block;

typedef struct copy {
  struct copy *next;
  const DLTensor *of;
  DLTensor tensor;
} copy;

/* What the kernels of a trial or of its gradients are launched with. */
typedef struct call {
  struct call *next;
  const void *of;
  pegen_args args;
  pegen_grad_args grad;
  const char *entry, *finish; /* finish: NULL, there is none */
} call;

typedef struct device {
  attention_machine machine;
  cuda_device cuda;
  arena *memory;
  block *blocks;
  copy *copies;
  bool failed; /* a copy could not be made, and words were printed */
  call *calls;
  peak_gpu peak;
  DLTensor *cycled[2]; /* k and v */
  cuda_address set[2][MOST_SETS];
  int sets, turn;
  cuda_address half[2]; /* that the copy moves from and to */
} device;

/* ---- memory ---- */

static bool allocate(device *d, size_t bytes, cuda_address *address) {
  if (!cuda_allocate(bytes, address)) return false;
  block *b = arena_new(d->memory, block);
  *b = (block){d->blocks, *address};
  d->blocks = b;
  return true;
}

/* The copy of the host's tensor; NULL of NULL. */
static DLTensor *copy_of(device *d, const DLTensor *host) {
  cuda_address address = 0;
  copy *c = d->copies;
  while (c && c->of != host) c = c->next;
  if (c || !host) return c ? &c->tensor : NULL;
  size_t bytes = tensor_bytes(host);
  if (!d->failed)
    d->failed =
        !allocate(d, bytes, &address) || !cuda_works(cuda.cuMemcpyHtoD_v2(address, host->data, bytes), "upload");
  c = arena_new(d->memory, copy);
  *c = (copy){d->copies, host, *host};
  c->tensor.data = (void *)(uintptr_t)address;
  c->tensor.device = (DLDevice){kDLCUDA, 0};
  d->copies = c;
  return &c->tensor;
}

static DLTensor **copies_of(device *d, DLTensor *const *list, int count) {
  DLTensor **copies = list ? arena_array(d->memory, DLTensor *, count + 1) : NULL;
  for (int i = 0; list && i < count; i++) copies[i] = copy_of(d, list[i]);
  return copies;
}

/* ---- calls ---- */

static void copy_forward(device *d, pegen_args *args) {
  args->q = copy_of(d, args->q);
  args->k = copy_of(d, args->k);
  args->v = copy_of(d, args->v);
  args->out = copy_of(d, args->out);
  args->lse = copy_of(d, args->lse);
  args->positions = copy_of(d, args->positions);
  args->k_positions = copy_of(d, args->k_positions);
  args->operands = (const DLTensor *const *)copies_of(d, (DLTensor *const *)args->operands, args->n_operands);
  args->inputs = (const DLTensor *const *)copies_of(d, (DLTensor *const *)args->inputs, args->n_inputs);
}

static void copy_gradients(device *d, pegen_grad_args *grad, const pegen_args *args) {
  grad->out = copy_of(d, grad->out);
  grad->lse = copy_of(d, grad->lse);
  grad->q = copy_of(d, grad->q);
  grad->k = copy_of(d, grad->k);
  grad->v = copy_of(d, grad->v);
  grad->positions = copy_of(d, grad->positions);
  grad->k_positions = copy_of(d, grad->k_positions);
  grad->operands = copies_of(d, grad->operands, args->n_operands);
  grad->inputs = copies_of(d, grad->inputs, args->n_inputs);
}

/* Copies of k and v, as many as are cycled. */
static bool lay_sets(device *d, const pegen_args *args) {
  d->cycled[0] = (DLTensor *)args->k;
  d->cycled[1] = (DLTensor *)args->v;
  size_t bytes[] = {tensor_bytes(args->k), tensor_bytes(args->v)}, sets = CYCLED_BYTES / (bytes[0] + bytes[1] + 1);
  d->sets = sets < 1 ? 1 : sets < MOST_SETS ? (int)sets : MOST_SETS;
  for (int t = 0; t < 2; t++)
    for (int i = 0; i < d->sets; i++) {
      if (i == 0) d->set[t][0] = (cuda_address)(uintptr_t)d->cycled[t]->data;
      else if (!allocate(d, bytes[t], &d->set[t][i]) ||
               !cuda_works(cuda.cuMemcpyDtoDAsync_v2(d->set[t][i], d->set[t][0], bytes[t], NULL), "copy"))
        return false;
    }
  return true;
}

static bool lay_workspace(device *d, const pegen_kernel *kernel, const char *entry, pegen_args *args) {
  cuda_address workspace = 0;
  if (d->failed) return false;
  args->workspace_bytes = pegen_cuda_workspace(kernel, entry, args);
  if (args->workspace_bytes && !allocate(d, args->workspace_bytes, &workspace)) return false;
  args->workspace = (void *)(uintptr_t)workspace;
  return true;
}

static call *find_call(const device *d, const void *of) {
  call *c = d->calls;
  while (c && c->of != of) c = c->next;
  return c;
}

/* The call is kept once it has been launched. */
static int launch(device *d, const pegen_kernel *kernel, call *c) {
  if (!d->sets && !lay_sets(d, &c->args)) return ATTENTION_TOLD;
  for (int t = 0; t < 2; t++) d->cycled[t]->data = (void *)(uintptr_t)d->set[t][d->turn % d->sets];
  d->turn++;
  int error = pegen_launch(kernel, c->entry, &c->args, NULL);
  if (!error && c->finish) error = pegen_launch(kernel, c->finish, &c->args, NULL);
  if (error == PEGEN_ERROR_CUDA) {
    diag_error(NULL, 0, "bench: the CUDA driver reported %s", pegen_cuda_error_name());
    return ATTENTION_TOLD;
  }
  if (!error && !find_call(d, c->of)) {
    c->next = d->calls;
    d->calls = c;
  }
  return error;
}

static int forward(attention_machine *m, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out) {
  device *d = (device *)m;
  call *c = find_call(d, t);
  if (!c) {
    c = arena_new(d->memory, call);
    *c = (call){.of = t, .args = attention_trial_args(kernel, t, out), .entry = "attention"};
    c->args.split_keys = 1;
    copy_forward(d, &c->args);
    if (!lay_workspace(d, kernel, c->entry, &c->args)) return ATTENTION_TOLD;
    if (c->args.workspace) c->finish = "attention_finish";
  }
  return launch(d, kernel, c);
}

static int backward(attention_machine *m, const pegen_kernel *kernel, const attention_gradients *g) {
  device *d = (device *)m;
  call *c = find_call(d, g);
  if (!c) {
    c = arena_new(d->memory, call);
    *c = (call){.of = g,
                .args = attention_trial_args(kernel, &g->forward, g->out),
                .grad = attention_gradients_args(g),
                .entry = "attention_backward"};
    c->args.grad = &c->grad;
    copy_forward(d, &c->args);
    copy_gradients(d, &c->grad, &c->args);
    if (!lay_workspace(d, kernel, c->entry, &c->args)) return ATTENTION_TOLD;
    if (attention_gradients_has_finish(g)) c->finish = "attention_backward_finish";
  }
  return launch(d, kernel, c);
}

/* ---- times ---- */

static int start(attention_machine *m) { return cuda_begin(&((device *)m)->cuda) ? 0 : ATTENTION_TOLD; }

static int stop(attention_machine *m, double *seconds) {
  return cuda_end(&((device *)m)->cuda, seconds) ? 0 : ATTENTION_TOLD;
}

static const char *peak_name(const attention_machine *m, number_type type) {
  return peak_gpu_name(((const device *)m)->cuda.target, type);
}

/* At the speed of a copy of many bytes, which are read and written. */
static bool time_copy(device *d, attention_limits *l) {
  double seconds, bytes = (double)(tensor_bytes(l->k) + tensor_bytes(l->v));
  for (int i = 0; i < 2; i++)
    if (!d->half[i] && !allocate(d, COPIED_BYTES, &d->half[i])) return false;
  if (!cuda_begin(&d->cuda) ||
      !cuda_works(cuda.cuMemcpyDtoDAsync_v2(d->half[1], d->half[0], COPIED_BYTES, NULL), "copy") ||
      !cuda_end(&d->cuda, &seconds))
    return false;
  seconds *= bytes / (2.0 * (double)COPIED_BYTES);
  if (l->reading == 0 || seconds < l->reading) l->reading = seconds;
  return true;
}

static int limit(attention_machine *m, attention_limits *l, bool reads, bool peaks) {
  device *d = (device *)m;
  double flops = 0;
  (void)reads; /* what is read is always told */
  if (!peaks) return 0;
  if (!peak_gpu_measure(&d->peak, &flops) || !time_copy(d, l)) return ATTENTION_TOLD;
  if (flops > l->peak) l->peak = flops;
  return 0;
}

/* ---- the device ---- */

static int open(attention_machine *m, arena *a, number_type type) {
  device *d = (device *)m;
  d->memory = a;
  return peak_gpu_open(a, &d->peak, &d->cuda, type) ? 0 : ATTENTION_TOLD;
}

static void clear(attention_machine *m) {
  device *d = (device *)m;
  peak_gpu_close(&d->peak);
  for (const block *b = d->blocks; b; b = b->next) cuda.cuMemFree_v2(b->address);
  *d = (device){.machine = d->machine, .cuda = d->cuda};
}

static void close(attention_machine *m) { cuda_close(&((device *)m)->cuda); }

attention_machine *attention_device(arena *a, const char *targets) {
  device *d = arena_new(a, device);
  if (!cuda_open(a, targets, &d->cuda)) return NULL;
  d->machine = (attention_machine){.device = d->cuda.name,
                                   .chip = d->cuda.target->name,
                                   .shapes = BENCH_ON_GPU,
                                   .dtypes = PEGEN_DTYPE_BF16,
                                   .sample_seconds = SAMPLE_SECONDS,
                                   .most_calls = MOST_CALLS,
                                   .peak_name = peak_name,
                                   .open = open,
                                   .clear = clear,
                                   .close = close,
                                   .forward = forward,
                                   .backward = backward,
                                   .start = start,
                                   .stop = stop,
                                   .limit = limit};
  return &d->machine;
}
