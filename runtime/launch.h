/* launch.h: from a call's arguments to GPU launches, without a GPU: what cuda.c hands to the driver, and
 * what tests run thread by thread on the host. */
#pragma once

#include "pegen/pegen.h"

#include "../kernel/entries.h"
#include "../kernel/launch.h"

#define PEGEN_HIDDEN __attribute__((visibility("hidden")))

/* A word of kernel/entries.h; NULL: the first that the kernel has. NONE: it has no such entry. */
PEGEN_HIDDEN pegen_launch_entry pegen_launch_find(const pegen_kernel *kernel, const char *name);
/* NULL: it has no attention entries. */
PEGEN_HIDDEN const pegen_ptx_attention *pegen_launch_attention_of(const pegen_kernel *kernel);

typedef struct pegen_launch_request {
  const pegen_kernel *kernel; /* has ptx */
  pegen_launch_entry entry;
  const pegen_args *args;
  int64_t threads; /* how many the device needs to be busy */
  int64_t shared; /* bytes of shared memory that a block may have on it; 0: any */
} pegen_launch_request;

typedef struct pegen_launch_step {
  const pegen_ptx_entry *entry;
  uint32_t grid_x, grid_y; /* blocks of kernel->ptx->block threads */
  int64_t parameter[PEGEN_PTX_MAX_PARAMETERS];
} pegen_launch_step;

typedef int pegen_launch_run(void *context, const pegen_launch_step *step);

/* Checks the arguments as the CPU's entry does (devices aside), then calls run for every launch in
 * order, until one returns an error. Where the result is a refusal, run was not called. */
PEGEN_HIDDEN int pegen_launch_plan(const pegen_launch_request *request, pegen_launch_run *run, void *context);

/* Whether every tensor that the call looks at is on this device; run after the shapes were checked. */
PEGEN_HIDDEN int pegen_launch_on_device(const pegen_launch_request *request, int (*fits)(DLDevice));

/* A tensor of rows of a call that was checked: it tells the device. */
PEGEN_HIDDEN const DLTensor *pegen_launch_rows(const pegen_launch_request *request);

/* Bytes of the workspace; 0 where none is needed, and where the call would be refused. */
PEGEN_HIDDEN size_t pegen_launch_workspace(const pegen_launch_request *request);

/* Checks alone, all that plan would refuse: 0 or a pegen_error. */
PEGEN_HIDDEN int pegen_launch_check(const pegen_launch_request *request);

/* ---- what those who plan have in common. A file calls those of the lines above its own: launch_kernel.c;
 * launch_parameters.c; launch_chunks.c; the checks of launch_check.c; launch_encode.c; launch_gradient.c; launch.c.
 * launch_attention.c stands beside launch_encode.c, launch_attention_backward.c, above launch_weights.c, beside
 * launch_gradient.c. ---- */

struct pegen_view; /* kernel/driver.h */
struct pegen_stream;
struct pegen_origin;
struct pegen_call;
struct pegen_driver;
struct pegen_backward_call; /* kernel/backward.h */
struct pegen_attention; /* kernel/attention.h */
struct pegen_attention_call; /* kernel/check_attention.h */

/* Whether a kernel was made when it had the field already. */
#define PEGEN_LAUNCH_HAS(kernel, field) ((kernel)->struct_size >= offsetof(pegen_kernel, field) + sizeof(kernel)->field)
/* NULL: it has no gradients of operands and positions. */
PEGEN_HIDDEN const pegen_ptx_gradient *pegen_launch_gradient_of(const pegen_kernel *kernel);
/* Bytes of dynamic shared memory that a launch of it gives a block, and whether the device has them. */
PEGEN_HIDDEN int32_t pegen_launch_shared_of(const pegen_kernel *kernel, const pegen_ptx_entry *entry);
/* Machine code of all entries; NULL: there is none. */
PEGEN_HIDDEN const void *pegen_launch_cubin_of(const pegen_kernel *kernel);
PEGEN_HIDDEN int pegen_launch_fits(const pegen_launch_request *request, const pegen_ptx_entry *entry);
/* What PTX entry i is found by. */
PEGEN_HIDDEN const char *pegen_launch_word_of(const pegen_kernel *kernel, int i);
/* The first PTX entry from `from` on that is found by a word; -1: there is none. */
PEGEN_HIDDEN int pegen_launch_next(const pegen_kernel *kernel, const char *word, int from);
/* Whether PTX entry i is launched for this. */
PEGEN_HIDDEN int pegen_launch_is_for(const pegen_kernel *kernel, int i, pegen_launch_entry entry);

PEGEN_HIDDEN int pegen_launch_is_aligned(const struct pegen_view *view, int64_t access);
PEGEN_HIDDEN void pegen_launch_set_tensor(int64_t *parameter, const struct pegen_stream *stream, int64_t batch);
/* Four parameters of rows (PEGEN_PTX_ROWS_ADDRESS, PEGEN_PTX_KEPT_ADDRESS), from batch `batch` on. */
PEGEN_HIDDEN void pegen_launch_set_rows(int64_t *parameter, const struct pegen_view *rows, int64_t batch);
/* Five of positions or their gradient; type -1: the built-in grid's, which leaves zeros. */
PEGEN_HIDDEN void pegen_launch_set_positions(int64_t *parameter, const struct pegen_view *view, int64_t type,
                                             int64_t batch);
/* What threads gave to positions: its address, the batches that did, shares of each, and whether the sum is added. */
typedef struct pegen_launch_shares {
  int64_t at, batches, count, adds;
} pegen_launch_shares;
/* The launch of the only entry of a word that adds shares up to the gradient `out` of positions. */
PEGEN_HIDDEN pegen_launch_step pegen_launch_gained_positions(const pegen_kernel *kernel, const char *word,
                                                             const struct pegen_view *out, int is_f64,
                                                             const pegen_launch_shares *of);
/* PEGEN_PTX_ORIGIN_COUNT parameters, of kernels whose columns have an origin of the call, from batch `batch` on. */
PEGEN_HIDDEN void pegen_launch_set_origin(int64_t *parameter, const pegen_kernel *kernel,
                                          const struct pegen_origin *origin, int64_t batch);
/* Rows of q and k of one token are encoded differently; older kernels' are not. */
static inline int pegen_launch_has_sides(const pegen_kernel *kernel) {
  return PEGEN_LAUNCH_HAS(kernel, has_sides) && kernel->has_sides;
}
/* Whether rows turn by inputs, so that each row of q, and the one of k beside it, has a rotor of its own. */
PEGEN_HIDDEN int pegen_launch_turns_rows(const pegen_kernel *kernel);
/* What the checks of calls of rows know of a kernel; the rest is 0. */
PEGEN_HIDDEN void pegen_launch_driver(const pegen_kernel *kernel, struct pegen_driver *driver);
/* Whether gradients of rows, too, are made of what encode read. */
static inline int pegen_launch_needs_input(const pegen_kernel *kernel) {
  return PEGEN_LAUNCH_HAS(kernel, needs_input) && kernel->needs_input;
}
/* Whether encode appends columns: then rows of q and k are not encoded alike. */
static inline int pegen_launch_has_columns(const pegen_kernel *kernel) {
  return PEGEN_LAUNCH_HAS(kernel, n_columns) &&
         (kernel->n_columns > 0 || (PEGEN_LAUNCH_HAS(kernel, widths) && kernel->widths));
}
PEGEN_HIDDEN int pegen_launch_inputs_of(const pegen_kernel *kernel); /* of a query; older kernels have none */
/* The parameter behind those of operands, which begin at `operands`, and of inputs. */
PEGEN_HIDDEN int pegen_launch_behind_inputs(const pegen_kernel *kernel, int operands);
/* Fills the parameters of operands, from the first one on. */
PEGEN_HIDDEN void pegen_launch_set_operands(int64_t *parameter, const pegen_kernel *kernel, const pegen_args *args);
/* Fills the parameters of inputs, which follow the operands, for the batches from `batch` on. The views are those that
 * were checked. */
PEGEN_HIDDEN void pegen_launch_set_inputs(int64_t *operands, const pegen_launch_request *request,
                                          const struct pegen_view *inputs, int64_t batch);

/* Fills the parameters of operands' gradients: address, 0 where it is not wanted, and type. */
PEGEN_HIDDEN void pegen_launch_set_gained(int64_t *parameter, const pegen_kernel *kernel, const pegen_grad_args *grad);
/* Fills the parameters of inputs' gradients, from the first one on, whose types are those of the inputs themselves at
 * `in`. The address is 0 where a gradient is not wanted, or is one of pairs. */
PEGEN_HIDDEN void pegen_launch_set_gained_inputs(int64_t *parameter, const pegen_kernel *kernel, const int64_t *in,
                                                 const struct pegen_view *gained);

/* A launch of so many threads along x, all parameters 0. */
PEGEN_HIDDEN pegen_launch_step pegen_launch_threads(const pegen_kernel *kernel, const pegen_ptx_entry *entry,
                                                    int64_t threads);
/* A launch of the only entry of a word, which adds up sums of chunks (PEGEN_PTX_SUM_FROM). `from` and `to` are
 * addresses. */
PEGEN_HIDDEN pegen_launch_step pegen_launch_sums(const pegen_kernel *kernel, const char *word, int64_t from, int64_t to,
                                                 int64_t numbers, int64_t chunks);
static inline int64_t pegen_divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

/* What the checks of attention know of a kernel; form: room for it. */
PEGEN_HIDDEN void pegen_launch_attention_driver(const pegen_kernel *kernel, struct pegen_driver *driver,
                                                struct pegen_attention *form);
/* All parameters of an attention entry, those of lse behind the others; where they begin. */
PEGEN_HIDDEN void pegen_launch_set_attention(int64_t *parameter, const pegen_launch_request *request,
                                             const struct pegen_attention_call *call);
PEGEN_HIDDEN int pegen_launch_lse_parameter(const pegen_kernel *kernel);
PEGEN_HIDDEN int pegen_launch_has_pair_inputs(const pegen_kernel *kernel);
PEGEN_HIDDEN int pegen_launch_is_pair_input(const pegen_kernel *kernel, int input);
/* How many an attention entry has; those of gradients begin there. */
PEGEN_HIDDEN int pegen_launch_attention_parameters(const pegen_kernel *kernel);
/* Blocks of so many rows each for those of heads; -1: more than can be counted. */
PEGEN_HIDDEN int64_t pegen_launch_tiles(int64_t rows, int64_t tile, int64_t heads, int64_t batches);

/* Plans of entries: without run only whether they would be refused. */
PEGEN_HIDDEN int pegen_launch_plan_encode(const pegen_launch_request *request, pegen_launch_run *run, void *context);
/* What chunks of keys come to, and bytes of the workspace that they are left in. */
PEGEN_HIDDEN int pegen_launch_plan_attention_finish(const pegen_launch_request *request, pegen_launch_run *run,
                                                    void *context);
PEGEN_HIDDEN size_t pegen_launch_split_bytes(const pegen_launch_request *request);
PEGEN_HIDDEN int pegen_launch_plan_attention(const pegen_launch_request *request, pegen_launch_run *run, void *context);
PEGEN_HIDDEN int pegen_launch_plan_backward(const pegen_launch_request *request, pegen_launch_run *run, void *context);
PEGEN_HIDDEN int pegen_launch_plan_finish(const pegen_launch_request *request, pegen_launch_run *run, void *context);
PEGEN_HIDDEN int pegen_launch_plan_attention_backward(const pegen_launch_request *request, pegen_launch_run *run,
                                                      void *context);
PEGEN_HIDDEN int pegen_launch_plan_attention_backward_finish(const pegen_launch_request *request, pegen_launch_run *run,
                                                             void *context);
/* Rows of a call that was checked: of encode, or gradients; kept: what encode read of q and k, or NULL. */
PEGEN_HIDDEN int pegen_launch_rows_of(const pegen_launch_request *request, const struct pegen_call *call,
                                      const struct pegen_view *kept, pegen_launch_run *run, void *context);
/* A call that was checked, copied: its streams point into themselves. */
PEGEN_HIDDEN void pegen_launch_copy_call(const struct pegen_call *call, struct pegen_call *copy);
/* The arguments of a backward entry; with_workspace as pegen_check_backward. */
PEGEN_HIDDEN int pegen_launch_check_backward(const pegen_launch_request *request, int with_workspace,
                                             struct pegen_backward_call *call);
/* Bytes of its workspace, as pegen_launch_workspace has them. */
PEGEN_HIDDEN size_t pegen_launch_backward_bytes(const pegen_launch_request *request);
PEGEN_HIDDEN size_t pegen_launch_attention_bytes(const pegen_launch_request *request);
