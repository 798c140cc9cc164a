/* call.c: see call.h. */
#include "call.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_PART = 1 << 15 }; /* elements: what PyTorch gives a thread at least of its own loops */

/* ---- kernels by name ---- */

struct known {
  struct known *next;
  pegen_kernel kernel; /* a copy: fields that an older kernel's struct ends before are 0 */
  int device; /* of CUDA, or ON_PROCESSOR */
  size_t length;
  char name[];
};

static _Atomic(struct known *) known_kernels; /* grows at its head, and never shrinks */
static struct torch_answers answers;

void set_answers(const struct torch_answers *given) { answers = *given; }

int add_kernel(const char *name, int device, const pegen_kernel *kernel) {
  size_t length = strlen(name);
  struct known *known = malloc(sizeof *known + length + 1);
  if (!known) return 0;
  *known = (struct known){.next = atomic_load(&known_kernels), .device = device, .length = length};
  memcpy(&known->kernel, kernel, kernel->struct_size < sizeof *kernel ? kernel->struct_size : sizeof *kernel);
  memcpy(known->name, name, length + 1);
  atomic_store(&known_kernels, known);
  return 1;
}

static const struct known *find_known(const char *name, size_t length, int device) {
  for (struct known *known = atomic_load(&known_kernels); known; known = known->next)
    if (known->device == device && known->length == length && !memcmp(known->name, name, length)) return known;
  return NULL;
}

static bool has_failed(const struct call *call) { return call->failure[0]; }

void fail_call(struct call *call, const char *format, ...) {
  if (has_failed(call)) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(call->failure, sizeof call->failure, format, arguments);
  va_end(arguments);
}

static const struct known *find_or_ask(struct call *call, const char *name, size_t length, int device) {
  const struct known *known = find_known(name, length, device);
  if (known) return known;
  answers.find(name, device, call->failure, sizeof call->failure);
  known = find_known(name, length, device);
  if (!known) fail_call(call, "kernel: '%.80s' is not known", name);
  return known;
}

void begin_call(struct call *call, torch_value value) {
  static const pegen_kernel none; /* after a failure nothing runs, but its sizes may be asked for */
  call->n_held = call->n_results = 0;
  call->failure[0] = 0;
  call->name = NULL;
  call->kernel = &none;
  call->args = (pegen_args){.struct_size = sizeof(pegen_args)};
  call->grad = (pegen_grad_args){.struct_size = sizeof(pegen_grad_args)};
  torch_string *string = (torch_string *)(uintptr_t)value;
  const char *name = NULL;
  size_t length = 0;
  const struct known *known = NULL;
  if (torch.string_text(string, &name) || torch.string_length(string, &length))
    fail_call(call, "kernel: its name cannot be read");
  else known = find_or_ask(call, name, length, ON_PROCESSOR);
  if (known) call->name = known->name;
  if (known) call->kernel = &known->kernel;
  torch.delete_string(string);
}

/* ---- tensors ---- */

static DLTensor *hold(struct call *call, torch_tensor *tensor) {
  if (has_failed(call) || call->n_held == MOST_TENSORS) {
    fail_call(call, "more than %d tensors", MOST_TENSORS);
    torch.delete_tensor(tensor);
    return NULL;
  }
  int i = call->n_held++;
  call->held[i] = tensor;
  int64_t dimensions = 0;
  int32_t type = 0, device = 0;
  DLTensor *view = &call->views[i];
  *view = (DLTensor){.device = {kDLCPU, 0}, .dtype = {kDLOpaqueHandle, 0, 1}};
  if (torch.get_data_ptr(tensor, &view->data) || torch.get_dim(tensor, &dimensions) ||
      torch.get_sizes(tensor, &view->shape) || torch.get_strides(tensor, &view->strides) ||
      torch.get_dtype(tensor, &type) || torch.get_device_type(tensor, &device))
    fail_call(call, "a tensor has no memory of its own that can be read");
  view->ndim = (int)dimensions;
  if (device != torch.device_type_cpu()) {
    view->device.device_type = kDLCUDA; /* which entries for processors refuse */
    if (torch.get_device_index(tensor, &view->device.device_id)) fail_call(call, "a tensor's device cannot be read");
  }
  for (size_t k = 0; k < sizeof torch.number_types / sizeof *torch.number_types; k++)
    if (torch.number_types[k].number == type) {
      view->dtype = torch.number_types[k].type;
      break;
    }
  return view;
}

DLTensor *tensor_of(struct call *call, torch_value value) { return hold(call, (torch_tensor *)(uintptr_t)value); }

static DLTensor *adjacent(struct call *call, DLTensor *view) {
  if (!view || view->ndim == 0 || view->strides[view->ndim - 1] == 1) return view;
  torch_tensor *given = NULL;
  torch_value stack[2] = {0, (torch_value)torch.contiguous_format()};
  if (torch.new_tensor(call->held[view - call->views], &given)) return fail_call(call, "no memory"), NULL;
  stack[0] = (torch_value)(uintptr_t)given;
  if (torch.call("aten::contiguous", "", stack, TORCH_INTERFACE)) return fail_call(call, "no memory for a copy"), NULL;
  return tensor_of(call, stack[0]);
}

DLTensor *rows_of(struct call *call, torch_value value) { return adjacent(call, tensor_of(call, value)); }

DLTensor *optional_of(struct call *call, torch_value value) {
  torch_value *inside = (torch_value *)(uintptr_t)value;
  if (!inside) return NULL;
  torch_value tensor = *inside;
  torch.delete_optional(inside);
  return tensor_of(call, tensor);
}

int list_of(struct call *call, torch_value value, const DLTensor **views, bool is_rows, const char *what) {
  torch_list *list = (torch_list *)(uintptr_t)value;
  size_t n = 0;
  if (torch.list_size(list, &n)) n = 0;
  if (n > MOST_LISTED) fail_call(call, "%s: %zu given, %d are the most", what, n, MOST_LISTED);
  for (size_t i = 0; i < n && !has_failed(call); i++) {
    torch_value item = 0;
    if (torch.list_get(list, i, &item)) fail_call(call, "%s: number %zu cannot be read", what, i);
    else views[i] = is_rows ? rows_of(call, item) : tensor_of(call, item);
  }
  torch.delete_list(list);
  return has_failed(call) ? 0 : (int)n;
}

int64_t count_elements(const DLTensor *x) {
  int64_t n = 1;
  for (int i = 0; x && i < x->ndim; i++) n *= x->shape[i];
  return x ? n : 0;
}

int64_t last_size(const DLTensor *x) { return x && x->ndim ? x->shape[x->ndim - 1] : 0; }

/* ---- results: in memory as torch.empty_like lays them out, which is what their fakes promise ---- */

enum { MOST_DIMENSIONS = 64 }; /* PyTorch's own limit */

/* Whether elements fill a piece of memory without holes or overlaps. */
static bool is_dense(const DLTensor *x) {
  int64_t expected = 1;
  bool seen[MOST_DIMENSIONS] = {false};
  for (int done = 0; done < x->ndim; done++) {
    int next = -1;
    for (int i = 0; i < x->ndim; i++)
      if (!seen[i] && x->shape[i] > 1 && x->strides[i] == expected) next = i;
    if (next < 0) break;
    seen[next] = true;
    expected *= x->shape[next];
  }
  for (int i = 0; i < x->ndim; i++)
    if (!seen[i] && x->shape[i] > 1 && count_elements(x)) return false;
  return true;
}

/* 1 where dimension a lies further out than b, -1 further in, 0 where that cannot be said. */
static int compare_dimensions(const DLTensor *x, int a, int b) {
  int64_t of_a = x->strides[a], of_b = x->strides[b];
  if (of_a == 0 || of_b == 0) return 0;
  if (of_a != of_b) return of_a < of_b ? -1 : 1;
  return x->shape[a] > x->shape[b] ? 1 : 0;
}

/* The strides of x's dimensions in their order, without holes: ATen's infer_dense_strides. */
static void close_holes(const DLTensor *x, int64_t *strides) {
  int order[MOST_DIMENSIONS], n = x->ndim;
  for (int i = 0; i < n; i++) order[i] = n - 1 - i;
  for (int i = 1; i < n; i++)
    for (int here = i, before = i - 1; before >= 0; before--) {
      int compared = compare_dimensions(x, order[before], order[here]);
      if (compared < 0) break;
      if (compared == 0) continue;
      int swapped = order[before];
      order[before] = order[here];
      order[here] = swapped;
      here = before;
    }
  int64_t step = 1;
  for (int i = 0; i < n; i++) {
    strides[order[i]] = step;
    if (x->shape[order[i]] > 1) step *= x->shape[order[i]];
  }
}

static void make_contiguous(int n, const int64_t *shape, int64_t *strides) {
  int64_t step = 1;
  for (int i = n - 1; i >= 0; i--) {
    strides[i] = step;
    step *= shape[i] > 1 ? shape[i] : 1;
  }
}

static int32_t number_of(DLDataType type) {
  for (size_t k = 0; k < sizeof torch.number_types / sizeof *torch.number_types; k++) {
    DLDataType known = torch.number_types[k].type;
    if (known.code == type.code && known.bits == type.bits) return torch.number_types[k].number;
  }
  return -1;
}

/* Memory where x is. */
static torch_tensor *allocate(struct call *call, const DLTensor *x, int n, const int64_t *shape, const int64_t *strides,
                              DLDataType type) {
  torch_tensor *made = NULL;
  int32_t number = number_of(type), device = torch.device_type_cpu();
  if (x->device.device_type == kDLCUDA) device = torch.device_type_cuda();
  if (number < 0) return fail_call(call, "rows are of a type that no kernel takes"), NULL;
  if (torch.empty_strided(n, shape, strides, number, device, x->device.device_id, &made))
    return fail_call(call, "no memory for what is written"), NULL;
  return made;
}

static DLTensor *new_tensor(struct call *call, const DLTensor *x, int n, const int64_t *shape, const int64_t *strides,
                            DLDataType type) {
  torch_tensor *made = allocate(call, x, n, shape, strides, type);
  DLTensor *view = made ? hold(call, made) : NULL;
  if (view) call->results[call->n_results++] = (int)(view - call->views);
  return view;
}

DLTensor *new_rows(struct call *call, const DLTensor *x, int64_t width) {
  if (has_failed(call) || !x) return NULL;
  int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
  if (x->ndim == 0 || x->ndim > MOST_DIMENSIONS)
    return fail_call(call, "rows have %d dimensions; expected [batches, heads, tokens, channels]", x->ndim), NULL;
  memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
  shape[x->ndim - 1] = width;
  if (x->shape[x->ndim - 1] != width) make_contiguous(x->ndim, shape, strides);
  else if (is_dense(x)) memcpy(strides, x->strides, (size_t)x->ndim * sizeof *strides);
  else close_holes(x, strides);
  return new_tensor(call, x, x->ndim, shape, strides, x->dtype);
}

DLTensor *new_gradient(struct call *call, const DLTensor *x) {
  if (has_failed(call) || !x) return NULL;
  int64_t strides[MOST_DIMENSIONS];
  bool is_wide = x->dtype.code == kDLFloat && x->dtype.bits == 64;
  make_contiguous(x->ndim, x->shape, strides);
  return new_tensor(call, x, x->ndim, x->shape, strides, (DLDataType){kDLFloat, is_wide ? 64 : 32, 1});
}

DLTensor *new_like(struct call *call, const DLTensor *x) {
  if (has_failed(call) || !x) return NULL;
  int64_t strides[MOST_DIMENSIONS];
  make_contiguous(x->ndim, x->shape, strides);
  return new_tensor(call, x, x->ndim, x->shape, strides, x->dtype);
}

DLTensor *new_numbers(struct call *call, const DLTensor *x) {
  if (has_failed(call) || !x || !x->ndim) return NULL;
  int64_t strides[MOST_DIMENSIONS];
  make_contiguous(x->ndim - 1, x->shape, strides);
  return new_tensor(call, x, x->ndim - 1, x->shape, strides, (DLDataType){kDLFloat, 32, 1});
}

/* ---- the call ---- */

struct parts {
  pegen_entry *entry;
  const pegen_args *args;
  int n;
  atomic_int error;
};

static void run_parts(int64_t begin, int64_t end, void *context) {
  struct parts *parts = context;
  for (int64_t part = begin; part < end; part++) {
    int error = parts->entry(parts->args, (int)part, parts->n);
    if (error) atomic_store(&parts->error, error);
  }
}

/* All parts. What the first one refuses is refused before any writes a byte, by each of them. */
static int run_on_threads(pegen_entry *entry, const pegen_args *args, int n) {
  if (n < 2) return entry(args, 0, 1);
  struct parts parts = {.entry = entry, .args = args, .n = n};
  if (torch.parallel_for(0, n, 1, run_parts, &parts)) return entry(args, 0, 1);
  return atomic_load(&parts.error);
}

static int parts_of(int64_t work) {
  uint32_t threads = 1;
  int64_t most = work / LEAST_PART;
  if (most < 2 || torch.num_threads(&threads)) return 1;
  return (int)(threads < most ? threads : most);
}

static int run_on_processor(struct call *call, const struct torch_entry *entry, int64_t work) {
  pegen_args *args = &call->args;
  size_t size = entry->workspace ? entry->workspace(args) : 0;
  void *room = NULL;
  if (size && posix_memalign(&room, 64, size)) {
    fail_call(call, "no memory for a workspace of %zu bytes", size);
    return 0;
  }
  args->workspace = room;
  args->workspace_bytes = size;
  int n = parts_of(work), error = run_on_threads(entry->run, args, n);
  if (!error && entry->finish) error = run_on_threads(entry->finish, args, n);
  free(room);
  return error;
}

/* The kernel for the call's device: the one that is known, where it has PTX, else one that Python compiles. */
static const pegen_kernel *find_for_device(struct call *call, int device) {
  if (call->kernel->ptx) return call->kernel;
  const struct known *known = find_or_ask(call, call->name, strlen(call->name), device);
  return known ? &known->kernel : NULL;
}

bool is_on_device(const struct call *call) { return call->n_held && call->views[0].device.device_type == kDLCUDA; }

/* Queued on the current stream, behind which PyTorch's allocator hands out the workspace again. */
static int run_on_device(struct call *call, const struct torch_entry *entry) {
  const DLTensor *first = &call->views[0];
  pegen_args *args = &call->args;
  const int device = first->device.device_id;
  void *stream = NULL;
  const pegen_kernel *kernel = find_for_device(call, device);
  if (!kernel) return 0;
  call->kernel = kernel;
  if (!torch.current_cuda_stream || torch.current_cuda_stream(device, &stream)) {
    fail_call(call, "%s: the current stream of device %d is not known", entry->name, device);
    return 0;
  }
  int64_t size = (int64_t)answers.launch_bytes(kernel, entry->name, args), one = 1;
  torch_tensor *room = size ? allocate(call, first, 1, &size, &one, (DLDataType){kDLUInt, 8, 1}) : NULL;
  if (has_failed(call)) return 0;
  if (room) torch.get_data_ptr(room, &args->workspace);
  args->workspace_bytes = (size_t)size;
  char finish[64];
  snprintf(finish, sizeof finish, "%s_finish", entry->name);
  int error = answers.launch(kernel, entry->name, args, stream);
  double seconds = answers.assembly_seconds();
  if (!error && entry->finish) {
    error = answers.launch(kernel, finish, args, stream);
    seconds += answers.assembly_seconds();
  }
  if (seconds > 0) answers.tell_wait(kernel->name, seconds);
  if (room) torch.delete_tensor(room);
  return error;
}

void run_entry(struct call *call, const struct torch_entry *entry, int64_t work) {
  if (has_failed(call)) return;
  if (!entry->run) return fail_call(call, "%s: %s has no such entry", entry->name, call->kernel->name);
  int error = is_on_device(call) ? run_on_device(call, entry) : run_on_processor(call, entry, work);
  call->args.workspace = NULL;
  if (!error) return;
  answers.explain(call->kernel, entry->name, error, &call->args, call->failure, sizeof call->failure);
  fail_call(call, "%s.%s refused the call (error %d)", call->kernel->name, entry->name, error);
}

void end_call(struct call *call, torch_value *stack, bool as_list) {
  torch_list *list = NULL;
  if (!has_failed(call) && as_list && torch.new_list((size_t)call->n_results, &list)) fail_call(call, "no memory");
  for (int i = 0; i < call->n_results && !has_failed(call); i++) {
    int index = call->results[i];
    torch_value value = (torch_value)(uintptr_t)call->held[index];
    if (!as_list) stack[i] = value;
    else if (torch.list_push(list, value)) fail_call(call, "no memory");
    call->held[index] = NULL; /* it is the stack's now */
  }
  for (int i = 0; i < call->n_held; i++)
    if (call->held[i]) torch.delete_tensor(call->held[i]);
  if (has_failed(call)) {
    answers.tell(call->failure);
    torch.check(false, __func__, __FILE__, __LINE__, call->failure); /* throws */
  }
  if (as_list) stack[0] = (torch_value)(uintptr_t)list;
}
