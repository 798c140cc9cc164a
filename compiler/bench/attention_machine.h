/* bench/attention_machine: where attention is timed: one thread of this processor, or an NVIDIA device.
 *
 * Kernels are called on tensors in the host's memory; a device keeps copies of them. Functions return the kernel's
 * error, 0, or ATTENTION_TOLD where words were printed already.
 */
#pragma once

#include "base/json.h"
#include "bench/request.h"
#include "target/request.h"
#include "verify/trial_attention_backward.h"

enum { ATTENTION_TOLD = -1 };

/* Rows of k and v, and what they are held against. */
typedef struct attention_limits {
  const DLTensor *k, *v; /* contiguous */
  double peak;    /* flops a second, the most so far */
  double reading; /* seconds of reading k and v once, the least so far; 0: not asked for */
} attention_limits;

typedef struct attention_machine attention_machine;
struct attention_machine {
  const char *device;    /* its name; NULL: a processor */
  const char *chip;      /* that PTX is for */
  unsigned shapes;       /* BENCH_ON_ bit */
  unsigned dtypes;       /* unless asked for */
  double sample_seconds; /* that calls between two looks at the clock fill, up to most_calls */
  int most_calls;
  const char *(*peak_name)(const attention_machine *m, number_type type);
  /* Makes ready for tensors of the arena, and forgets them. */
  int (*open)(attention_machine *m, arena *a, number_type type);
  void (*clear)(attention_machine *m);
  void (*close)(attention_machine *m);
  int (*forward)(attention_machine *m, const pegen_kernel *kernel, const attention_trial *t, DLTensor *out);
  int (*backward)(attention_machine *m, const pegen_kernel *kernel, const attention_gradients *g);
  int (*start)(attention_machine *m); /* of the clock */
  int (*stop)(attention_machine *m, double *seconds);
  /* One turn of the peak's loop, and, where `reads`, of a reading of k and v. */
  int (*limit)(attention_machine *m, attention_limits *l, bool reads, bool peaks);
};

attention_machine *attention_processor(arena *a);
/* The device for the lowest GPU among the targets; NULL after a message. */
attention_machine *attention_device(arena *a, const char *targets);
