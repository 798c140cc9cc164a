/* launch.h: from a call's arguments to GPU launches, without a GPU: what cuda.c hands to the driver, and
 * what tests run thread by thread on the host. */
#ifndef PEGEN_RUNTIME_LAUNCH_H
#define PEGEN_RUNTIME_LAUNCH_H

#include "pegen/pegen.h"

#include "../kernel/launch.h"

#define PEGEN_HIDDEN __attribute__((visibility("hidden")))

/* What a kernel's PTX can be asked for. */
typedef enum pegen_launch_entry {
  PEGEN_LAUNCH_NONE = -1,
  PEGEN_LAUNCH_ENCODE,
  PEGEN_LAUNCH_ATTENTION,
  PEGEN_LAUNCH_ENCODE_BACKWARD
} pegen_launch_entry;

/* "encode", "attention", "encode_backward"; NULL: the first of the two that the kernel has. NONE: it has no such entry.
 */
PEGEN_HIDDEN pegen_launch_entry pegen_launch_find(const pegen_kernel *kernel, const char *name);
/* NULL: it has no attention entries. */
PEGEN_HIDDEN const pegen_ptx_attention *pegen_launch_attention_of(const pegen_kernel *kernel);

typedef struct pegen_launch_request {
  const pegen_kernel *kernel; /* has ptx */
  pegen_launch_entry entry;
  const pegen_args *args;
  int64_t threads; /* how many the device needs to be busy */
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

/* Checks alone: 0 or a pegen_error. */
PEGEN_HIDDEN int pegen_launch_check(const pegen_launch_request *request);

/* ---- shared by launch.c and launch_attention.c ---- */

struct pegen_view; /* kernel/driver.h */

PEGEN_HIDDEN int pegen_launch_plan_attention(const pegen_launch_request *request, pegen_launch_run *run, void *context);
/* Fills the parameters of operands, from the first one on. */
PEGEN_HIDDEN void pegen_launch_set_operands(int64_t *parameter, const pegen_kernel *kernel, const pegen_args *args);
/* The same of inputs, of the batches from `batch` on; their memory as it was checked. */
PEGEN_HIDDEN void pegen_launch_set_inputs(int64_t *parameter, const pegen_launch_request *request,
                                          const struct pegen_view *inputs, int64_t batch);

#endif
