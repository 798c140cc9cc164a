/* call.h: a call of a kernel's entry with PyTorch's tensors: from what stands on an operator's stack to pegen_args, the
 * call in as many parts as PyTorch has threads, and what is left on the stack.
 *
 * The steps of an operator may fail one by one; the first failure is kept, the others do nothing then, and end_call
 * says it, with all references given back.
 */
#ifndef PEGEN_TORCH_CALL_H
#define PEGEN_TORCH_CALL_H

#include "shim.h"

enum { MOST_TENSORS = 256, MOST_LISTED = 64, TEXT_SIZE = 1024 };

struct call {
  const char *name; /* of the kernel, as operators have it; NULL after a failure */
  const pegen_kernel *kernel; /* for processors; what it says of itself is true of its copies for devices */
  pegen_args args;
  pegen_grad_args grad;
  int n_held, n_results;
  torch_tensor *held[MOST_TENSORS]; /* references of this call's */
  DLTensor views[MOST_TENSORS]; /* of `held` */
  int results[2 * MOST_LISTED]; /* indices into them */
  const DLTensor *operands[MOST_LISTED], *inputs[MOST_LISTED];
  DLTensor *grad_operands[MOST_LISTED], *grad_inputs[MOST_LISTED];
  char failure[TEXT_SIZE]; /* "": none */
};

enum { ON_PROCESSOR = -1 };

/* How Python answers: finds a kernel by its name, ON_PROCESSOR or for a CUDA device (add_kernel is called within), and
 * puts a refusal in words. Both write a sentence; an empty one of find_kernel means that it is there. */
typedef void torch_find_kernel(const char *name, int device, char *text, size_t size);
typedef void torch_explain(const pegen_kernel *kernel, const char *entry, int error, const pegen_args *args, char *text,
                           size_t size);
/* What is about to be thrown, for Python to make an exception of its own of. */
typedef void torch_tell(const char *text);
/* pegen_launch and pegen_cuda_workspace (pegen/cuda.h), which are in a library that Python has loaded. */
typedef int torch_launch(const pegen_kernel *kernel, const char *entry, const pegen_args *args, void *stream);
typedef size_t torch_launch_bytes(const pegen_kernel *kernel, const char *entry, const pegen_args *args);

/* pegen_cuda_assembly_seconds; and Python, to warn of a kernel whose call waited so long. */
typedef double torch_assembly_seconds(void);
typedef void torch_tell_wait(const char *kernel, double seconds);

struct torch_answers {
  torch_find_kernel *find;
  torch_explain *explain;
  torch_tell *tell;
  torch_launch *launch;
  torch_launch_bytes *launch_bytes;
  torch_assembly_seconds *assembly_seconds;
  torch_tell_wait *tell_wait;
  const char *operators; /* the namespace that Python has declared them in */
};
void set_answers(const struct torch_answers *answers);

/* Makes a kernel known to the operators of this process, ON_PROCESSOR or for a CUDA device; it and its name stay. One
 * thread at a time may call it. Returns 0 where there is no memory. */
int add_kernel(const char *name, int device, const pegen_kernel *kernel);

/* Begins a call of the kernel whose name is a text on the stack. */
void begin_call(struct call *call, torch_value name);

/* Arguments from the stack, as views; NULL of what is left out or after a failure. rows_of: with channels side by side,
 * of a copy where they are not. list_of: how many there are, at most MOST_LISTED. */
DLTensor *tensor_of(struct call *call, torch_value value);
DLTensor *rows_of(struct call *call, torch_value value);
DLTensor *optional_of(struct call *call, torch_value value);
int list_of(struct call *call, torch_value value, const DLTensor **views, bool is_rows, const char *what);

/* A new tensor for results: rows of `width` channels that lie in memory as x does, as torch.empty_like has it; of x's
 * shape, contiguous, float32 or, as x, float64; of x's shape and type, contiguous; a float32 for each of x's rows. */
DLTensor *new_rows(struct call *call, const DLTensor *x, int64_t width);
DLTensor *new_gradient(struct call *call, const DLTensor *x);
DLTensor *new_like(struct call *call, const DLTensor *x);
DLTensor *new_numbers(struct call *call, const DLTensor *x);

/* Fails with the sentence. */
void fail_call(struct call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct torch_entry {
  const char *name;
  pegen_entry *run, *finish; /* on processors; finish: what is called behind it, or NULL */
  pegen_workspace_entry *workspace;
};

/* Runs an entry where the call's first tensor is. work: how much there is to do, in elements that are read and
 * written. */
void run_entry(struct call *call, const struct torch_entry *entry, int64_t work);

/* Puts the results on the stack, singly or (as_list) as one list, or throws PyTorch's exception. */
void end_call(struct call *call, torch_value *stack, bool as_list);

/* Both are 0 for NULL, which stands for what could not be read. */
int64_t count_elements(const DLTensor *x);
int64_t last_size(const DLTensor *x);

/* Whether the call's first tensor is on a CUDA device. */
bool is_on_device(const struct call *call);

#endif
