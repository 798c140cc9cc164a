/* host.h: a program that calls a kernel, as tests need it: tensors of any layout in
 * guarded memory, and comparisons by index rather than by address.
 *
 * What is in a tensor depends on its indices and a seed alone, so two hosts of different layout
 * hold the same numbers and must get the same results, bit for bit.
 */
#ifndef PEGEN_TESTS_HOST_H
#define PEGEN_TESTS_HOST_H

#include "pegen/pegen.h"

enum { HOST_OPERANDS = 8, HOST_SLABS = 16, HOST_GUARD = 256 };

typedef enum host_layout {
  HOST_BHND,   /* contiguous */
  HOST_BNHD,   /* heads inside of tokens */
  HOST_PADDED, /* [B,N,H,D] with gaps after each row, token and batch */
  HOST_FUSED   /* q and k are slices of one [B,N,H + 2 Hkv,D] buffer, and so are the outputs; needs N = M */
} host_layout;

typedef enum host_number { HOST_F32, HOST_F64, HOST_F16, HOST_BF16, HOST_I32, HOST_I64 } host_number;

typedef struct host_shape {
  int64_t batch, heads, kv_heads, tokens, kv_tokens;
  host_number dtype;
  host_layout layout;
  int in_place;
  host_number positions; /* HOST_F32, HOST_F64, HOST_I32 or HOST_I64 */
  int per_batch;         /* positions [B,N,P]; otherwise [N,P] */
  int k_positions;       /* 1: a tensor of their own, other coordinates than those of q */
  host_number operands;
} host_shape;

typedef struct host_slab { /* memory with guards on both sides */
  unsigned char *bytes, *before;
  size_t size;
} host_slab;

typedef struct host_tensor {
  DLTensor dl;
  int64_t shape[4], strides[4];
} host_tensor;

typedef struct host {
  const pegen_kernel *kernel;
  host_shape shape;
  int n_slabs;
  host_slab slabs[HOST_SLABS];
  host_tensor q, k, q_out, k_out, positions, k_positions, operands[HOST_OPERANDS];
  const DLTensor *operand_pointers[HOST_OPERANDS];
  pegen_args args; /* ready to call */
  uint64_t later[PEGEN_ARGS_MOST_SIZE / 8]; /* zeros: where fields of later versions would be */
} host;

/* A shape that suits the kernel: 2 batches, 7 tokens, its own heads or 3, contiguous, float32. */
host_shape host_usual(const pegen_kernel *kernel);
/* Allocates and fills; free with host_end. Positions are whole numbers, also negative ones. */
void host_begin(host *h, const pegen_kernel *kernel, const host_shape *shape);
void host_end(host *h);
/* Remembers all memory as it is now (host_begin does it too). */
void host_remember(host *h);
/* Asserts that no byte has changed since. */
void host_assert_untouched(const host *h);
/* Asserts that none has changed but elements of outputs. */
void host_assert_only_outputs(const host *h);
/* Calls the kernel in `parts` parts, last part first; asserts that it succeeds and keeps the guards. */
void host_encode(host *h, int parts);

/* The bytes of an element. */
unsigned char *host_at(const host_tensor *t, int64_t b, int64_t i, int64_t n, int64_t d);
/* The element as a number. */
double host_value(const host_tensor *t, int64_t b, int64_t i, int64_t n, int64_t d);
/* Asserts that both have one shape and the same bits by index. */
void host_assert_same(const host_tensor *a, const host_tensor *b);
/* Asserts the same of q_out and k_out. */
void host_assert_same_outputs(const host *a, const host *b);
/* A number type that the kernel has no code for is skipped by tests. */
int host_supports(const pegen_kernel *kernel, host_number dtype);

/* Gradients by way of a table, of a kernel that has them: see gradients.c. */
void host_gradients_by_table(const pegen_kernel *kernel);

/* Runs the walk over the interface, and that over refusals, as two cmocka groups. Returns the number of failures. */
int walk_interface(const pegen_kernel *kernel);
int walk_refusals(const pegen_kernel *kernel);

#endif
