/* gpu_moved: tensors of gradients on the device and back, and calls for them. */
#ifndef PEGEN_TESTS_GPU_MOVED_H
#define PEGEN_TESTS_GPU_MOVED_H

#include "gpu_case.h"
#include "verify/trial_attention_backward.h"

/* NULL of none. */
DLTensor *gpu_upload(gpu_case *c, const DLTensor *host);

/* What goes out, on the device. */
typedef struct gpu_moved {
  attention_gradients on_device;
  const attention_gradients *host;
} gpu_moved;

gpu_moved gpu_move_out(gpu_case *c, const attention_gradients *host);
void gpu_move_back(gpu_case *c, const gpu_moved *m);

/* pegen_launch of an entry with the workspace that it asks for, and of its finish; NULL: of none. */
int gpu_launch_in_workspace(gpu_case *c, const char *entry, const char *finish, pegen_args *args);

#endif
