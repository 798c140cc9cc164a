/* handler.c: what XLA calls; see pegen/xla.h. */
#include "call.h"

#include "pegen/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

static void *refuse(const xla_frame *frame, int code, const char *message) {
  xla_error_request request = {sizeof request, NULL, message, code};
  return frame->api->create_error(&request);
}

/* An entry that XLA calls, by the fields of pegen_kernel. Older kernels may end before them. */
static const struct xla_kind {
  const char *name, *finish_name; /* finish_name: NULL: there is none */
  size_t first, finish, workspace;
} kinds[] = {
#define FIELD(name) offsetof(pegen_kernel, name)
#define KIND(name) {#name, #name "_finish", FIELD(name), FIELD(name##_finish), FIELD(name##_workspace)}
    [PEGEN_XLA_ENCODE] = {"encode", NULL, FIELD(encode), 0, FIELD(workspace)},
    [PEGEN_XLA_ATTENTION] = {"attention", "attention_finish", FIELD(attention), FIELD(attention_finish),
                             FIELD(workspace)},
    [PEGEN_XLA_ENCODE_BACKWARD] = KIND(encode_backward),
    [PEGEN_XLA_ATTENTION_BACKWARD] = KIND(attention_backward),
    [PEGEN_XLA_ATTENTION_TANGENT] = {"attention_tangent", NULL, FIELD(attention_tangent), 0, 0},
#undef KIND
#undef FIELD
};

static void *refuse_call(const xla_frame *frame, const xla_request *request, int error) {
  char text[512];
  snprintf(text, sizeof text, "%s.%s: %s", request->kernel->name, kinds[request->entry].name, pegen_strerror(error));
  return refuse(frame, XLA_INVALID_ARGUMENT, text);
}

/* XLA asks once which version a handler is of. */
static bool tell_version(xla_frame *frame) {
  for (xla_extension *e = frame->extension_start; e; e = e->next)
    if (e->type == XLA_EXTENSION_METADATA) {
      xla_metadata *metadata = ((xla_metadata_extension *)e)->metadata;
      metadata->version.major = XLA_API_MAJOR;
      metadata->version.minor = XLA_API_MINOR;
      metadata->traits = 0;
      return true;
    }
  return false;
}

/* ---- entries ---- */

typedef struct entries {
  pegen_entry *first, *finish; /* NULL: there is none */
} entries;

/* A pointer of the kernel's; false: it ends before, or has none. */
static bool read_field(const pegen_kernel *kernel, size_t at, void *field) {
  static const pegen_entry *none;
  bool has = at && kernel->struct_size >= at + sizeof none;
  memcpy(field, has ? (const void *)((const char *)kernel + at) : &none, sizeof none);
  return has && memcmp(field, &none, sizeof none);
}

static bool needs_finish(int64_t entry) {
  return entry == PEGEN_XLA_ENCODE_BACKWARD || entry == PEGEN_XLA_ATTENTION_BACKWARD;
}

static bool find_entries(const xla_request *request, entries *found) {
  if (request->entry < 0 || request->entry >= (int64_t)(sizeof kinds / sizeof *kinds)) return false;
  const struct xla_kind *kind = &kinds[request->entry];
  bool has_first = read_field(request->kernel, kind->first, &found->first);
  bool has_finish = read_field(request->kernel, kind->finish, &found->finish);
  return has_first && (has_finish || !needs_finish(request->entry));
}

/* Whether something is left to add up: chunks of keys, what operands gain, of attention what positions and inputs gain,
 * too. */
static bool has_finish(const xla_call *call) {
  const pegen_grad_args *grad = &call->grad;
  if (call->request.entry == PEGEN_XLA_ATTENTION) return call->args.split_keys != 0;
  bool of_pairs = call->request.entry == PEGEN_XLA_ATTENTION_BACKWARD;
  return grad->operands || (of_pairs && (grad->positions || grad->k_positions || grad->inputs));
}

static void set_args(xla_call *call) {
  const xla_request *request = &call->request;
  call->args = (pegen_args){.struct_size = sizeof call->args, .causal = (int32_t)request->causal};
  call->args.scale = request->scale;
  call->grad = (pegen_grad_args){.struct_size = sizeof call->grad, .flags = (uint32_t)request->flags};
  if (needs_finish(request->entry) || request->entry == PEGEN_XLA_ATTENTION_TANGENT) call->args.grad = &call->grad;
  for (int i = 0; i < PEGEN_XLA_MOST_BUFFERS; i++) {
    call->operands[i] = call->inputs[i] = NULL;
    call->operand_gradients[i] = call->input_gradients[i] = NULL;
  }
}

/* At least one. */
static int64_t count_sequences(const xla_call *call) {
  const DLTensor *bounds = call->args.cu_seqlens;
  return bounds && bounds->ndim == 1 && bounds->shape[0] > 2 ? bounds->shape[0] - 1 : 1;
}

/* What is read and written, and of attention as many times more as a tile of keys is walked. */
static int64_t work_of(const xla_call *call) {
  int64_t bytes = 0;
  for (int i = 0; i < call->n_tensors; i++) {
    const DLTensor *t = &call->tensors[i].tensor;
    int64_t size = t->dtype.bits / 8;
    for (int axis = 0; axis < t->ndim; axis++) size *= t->shape[axis];
    bytes += size;
  }
  const DLTensor *k = call->args.k;
  bool of_pairs = call->args.out || call->grad.out;
  if (of_pairs && k && k->ndim == 4) bytes *= 1 + k->shape[2] / 64;
  if (of_pairs && k && k->ndim == 3) bytes *= 1 + k->shape[0] / count_sequences(call) / 64;
  return bytes;
}

/* ---- the workspace of sequences ---- */

typedef struct room {
  void *data;
  size_t bytes;
} room;

/* Gives a call with boundaries the workspace that these ask for, where the program brought none. A kernel that will
 * refuse the call asks for nothing. */
static int make_room(xla_call *call, room *r) {
  pegen_workspace_entry *size_of;
  bool has_size = read_field(call->request.kernel, kinds[call->request.entry].workspace, &size_of);
  if (!pegen_xla_has_bounds(call) || call->has_workspace || !has_size) return 0;
  call->args.workspace = NULL;
  call->args.workspace_bytes = 0;
  size_t bytes = size_of(&call->args);
  if (bytes > r->bytes) {
    free(r->data);
    *r = (room){0};
    if (posix_memalign(&r->data, 64, bytes)) {
      r->data = NULL;
      return PEGEN_ERROR_NO_MEMORY;
    }
    r->bytes = bytes;
  }
  call->args.workspace = bytes ? r->data : NULL;
  call->args.workspace_bytes = bytes;
  return 0;
}

/* ---- one element in front after the other ---- */

static void set_place(xla_call *call, const int64_t place[MOST_FRONT]) {
  for (int i = 0; i < call->n_tensors; i++) {
    xla_tensor *t = &call->tensors[i];
    t->tensor.byte_offset = 0;
    for (int axis = 0; axis < call->n_front; axis++) t->tensor.byte_offset += (uint64_t)(place[axis] * t->step[axis]);
    if (t->role == PEGEN_XLA_WORKSPACE) /* of which a size of 0 would not be checked */
      call->args.workspace = t->tensor.data && t->shape[0] ? (char *)t->tensor.data + t->tensor.byte_offset : NULL;
  }
}

static bool next_place(const xla_call *call, int64_t place[MOST_FRONT]) {
  for (int axis = call->n_front - 1; axis >= 0; axis--) {
    if (++place[axis] < call->front[axis]) return true;
    place[axis] = 0;
  }
  return false;
}

static int run_once(const xla_frame *frame, const xla_call *call, const entries *entry, int64_t bytes) {
  int error = pegen_xla_run_parts(frame, entry->first, &call->args, bytes);
  if (!error && entry->finish && has_finish(call))
    error = pegen_xla_run_parts(frame, entry->finish, &call->args, bytes);
  return error;
}

static int launch(const xla_call *call, void *stream) {
  const struct xla_kind *kind = &kinds[call->request.entry];
  int error = pegen_launch(call->request.kernel, kind->name, &call->args, stream);
  if (error || !kind->finish_name || !has_finish(call)) return error;
  return pegen_launch(call->request.kernel, kind->finish_name, &call->args, stream);
}

/* stream: NULL on processors. */
static int run(const xla_frame *frame, xla_call *call, const entries *entry, bool on_gpu, void *stream) {
  int64_t place[MOST_FRONT] = {0}, bytes = work_of(call);
  for (int i = 0; i < call->n_front; i++)
    if (!call->front[i]) return 0;
  if (on_gpu && pegen_xla_has_bounds(call)) return PEGEN_ERROR_NO_SEQUENCES;
  room r = {0};
  int error;
  do {
    set_place(call, place);
    if ((error = make_room(call, &r)) != 0) break;
    error = on_gpu ? launch(call, stream) : run_once(frame, call, entry, bytes);
  } while (!error && next_place(call, place));
  free(r.data);
  return error;
}

static void *handle(xla_frame *frame, bool on_gpu, DLDevice device, void *stream) {
  xla_call call;
  entries entry;
  call.n_front = 0;
  const char *wrong = pegen_xla_read_request(frame, &call.request);
  if (wrong) return refuse(frame, XLA_FAILED_PRECONDITION, wrong);
  if (!find_entries(&call.request, &entry)) return refuse(frame, XLA_INVALID_ARGUMENT, "the kernel has no such entry");
  set_args(&call);
  if ((wrong = pegen_xla_read_buffers(frame, &call, device))) return refuse(frame, XLA_INVALID_ARGUMENT, wrong);
  call.args.split_keys = call.request.entry == PEGEN_XLA_ATTENTION && call.has_workspace;
  pegen_xla_fold(&call);
  int error = run(frame, &call, &entry, on_gpu, stream);
  return error ? refuse_call(frame, &call.request, error) : NULL;
}

void *pegen_xla_call(void *call_frame) {
  xla_frame *frame = call_frame;
  if (tell_version(frame) || frame->stage != XLA_STAGE_EXECUTE) return NULL;
  return handle(frame, false, (DLDevice){kDLCPU, 0}, NULL);
}

void *pegen_xla_call_cuda(void *call_frame) {
  xla_frame *frame = call_frame;
  if (tell_version(frame) || frame->stage != XLA_STAGE_EXECUTE) return NULL;
  xla_stream_request stream = {sizeof stream, NULL, frame->context, NULL};
  void *error = frame->api->get_stream(&stream);
  if (error) return error;
  xla_ordinal_request ordinal = {sizeof ordinal, NULL, frame->context, 0};
  if (frame->api->struct_size >= sizeof *frame->api && (error = frame->api->get_ordinal(&ordinal))) return error;
  return handle(frame, true, (DLDevice){kDLCUDA, ordinal.ordinal}, stream.stream);
}
