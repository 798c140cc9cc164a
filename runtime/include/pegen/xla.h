/* xla.h: kernels as custom calls of XLA, by its foreign function interface (what jax.ffi registers).
 *
 * There is one handler for all kernels and all entries. A call names its kernel by a number under which this process
 * has registered it, which should be a digest of the kernel's object: what XLA keeps of a program then means the same
 * kernel in every process, and a process that has not registered it gets an error. No address stands in a program.
 *
 *     pegen_xla_register(kernel, number);
 *     jax.ffi.register_ffi_target("pegen_kernels", jax.ffi.pycapsule(library.pegen_xla_call), platform="cpu")
 *
 * Attributes of the custom call, all of them, numbers of 64 bits:
 *   arguments, results   arrays: the PEGEN_XLA_ role of each buffer, in their order
 *   kernel, entry        the number; PEGEN_XLA_ENCODE and so on
 *   layout               0: rows are [B,H,N,D]; 1: [B,N,H,D]; lse is [B,H,N]
 *   flags, causal, scale of pegen_grad_args and pegen_args; scale is a float64
 * Buffers are dense with the last dimension fastest. All may have as many dimensions more in front, each of one size or
 * of 1 (vmap with "expand_dims"): the call is made for each of their elements, or once with all as batches where
 * that is the same. A result may be given the memory of an argument (input_output_aliases) where in-place calls allow.
 * Where boundaries of sequences are among them rows are [total,H,D] in either layout, lse is [total,H], and the
 * workspace may be left out: how large it is depends on what boundaries hold, so the handler asks the kernel and has
 * its own.
 *
 * The work of a large call is shared with XLA's own pool of threads; results do not depend on it.
 */
#ifndef PEGEN_XLA_H
#define PEGEN_XLA_H

#include <pegen/pegen.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  PEGEN_XLA_ENCODE = 0,
  PEGEN_XLA_ATTENTION = 1,
  PEGEN_XLA_ENCODE_BACKWARD = 2,
  PEGEN_XLA_ATTENTION_BACKWARD = 3,
  PEGEN_XLA_ATTENTION_TANGENT = 4 /* on processors */
};

/* What a buffer is: fields of pegen_args, then of its grad. */
enum {
  PEGEN_XLA_Q = 0,
  PEGEN_XLA_K = 1,
  PEGEN_XLA_V = 2,
  PEGEN_XLA_Q_OUT = 3,
  PEGEN_XLA_K_OUT = 4,
  PEGEN_XLA_OUT = 5,
  PEGEN_XLA_POSITIONS = 6,
  PEGEN_XLA_K_POSITIONS = 7,
  PEGEN_XLA_GRAD_Q_OUT = 8,
  PEGEN_XLA_GRAD_K_OUT = 9,
  PEGEN_XLA_GRAD_Q = 10,
  PEGEN_XLA_GRAD_K = 11,
  PEGEN_XLA_GRAD_POSITIONS = 12,
  PEGEN_XLA_GRAD_K_POSITIONS = 13,
  PEGEN_XLA_WORKSPACE = 14,       /* uint8 */
  PEGEN_XLA_LSE = 15,             /* as OUT: attention writes it, attention_backward reads it */
  PEGEN_XLA_GRAD_OUT = 16,
  PEGEN_XLA_GRAD_LSE = 17,
  PEGEN_XLA_GRAD_V = 18,
  PEGEN_XLA_CU_SEQLENS = 19,      /* int32, as of pegen_args; on processors */
  PEGEN_XLA_K_CU_SEQLENS = 20,
  PEGEN_XLA_OPERAND = 256,        /* and its index */
  PEGEN_XLA_INPUT = 512,          /* and its index */
  PEGEN_XLA_GRAD_OPERAND = 768,   /* and its index */
  PEGEN_XLA_GRAD_INPUT = 1024,    /* and its index */
  PEGEN_XLA_MOST_BUFFERS = 64     /* of a call */
};

/* The kernel is known by that number from here on, and must stay mapped for good. The first one of a number stays. 0,
 * or a pegen_error: KERNEL, NO_MEMORY. Safe from any thread. */
int pegen_xla_register(const pegen_kernel *kernel, int64_t number);

/* The handlers, XLA_FFI_Handler each: of XLA's CPU platform, and of CUDA, where calls are queued on XLA's stream. */
void *pegen_xla_call(void *call_frame);
void *pegen_xla_call_cuda(void *call_frame);

#ifdef __cplusplus
}
#endif
#endif
