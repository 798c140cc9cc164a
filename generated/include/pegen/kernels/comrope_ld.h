/* comrope_ld: ComRoPE-LD, linearly dependent (Yu et al.)
 *
 * Made by pegen 0.2.0 from the description comrope_ld with
 *   head_dim=64 heads=1 axes=2 block=8 basis=channels prepare=float32 coordinates=given cells= trained= origin=0 multiplier=shared skip_tokens=0 inverse=false grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k, q_out, k_out  [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: h, w
 *   blocks              8 of 8 channels each
 */
#ifndef PEGEN_KERNEL_COMROPE_LD_H
#define PEGEN_KERNEL_COMROPE_LD_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "comrope_ld was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define COMROPE_LD_HEAD_DIM 64 /* channels of a row */
#define COMROPE_LD_AXES 2 /* coordinates of a position */
#define COMROPE_LD_HEADS 0 /* heads it is made for; 0: any number */
#define COMROPE_LD_SKIP_TOKENS 0 /* tokens at the front that pass through */

/* Index of each operand in pegen_args.operands. */
enum {
  /* multiplier: factor of a block's generator on an axis
   * shape  [axes=2, 8], contiguous; float32, float64, float16 or bfloat16
   * units  1
   * start  1 on axis number g mod P, else 0: with the generators' it is RoPE
   * source ComRoPE-LD */
  COMROPE_LD_OPERAND_MULTIPLIER = 0,
  /* generators: raw generator F of a block: A = F - F^T
   * shape  [heads=1, blocks=8, 8, 8], contiguous; float32, float64, float16 or bfloat16
   * units  radians per unit of position
   * start  RoPE's planes (ComRoPE, appendix D.1): F = frequency at (2c + 1, 2c), else 0
   * source ComRoPE, trainable angle matrices */
  COMROPE_LD_OPERAND_GENERATORS = 1,
  COMROPE_LD_OPERAND_COUNT = 2
};

/* What the object says of itself. */
extern const pegen_kernel comrope_ld_kernel;

/* Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then
 * nothing was written. */
int comrope_ld_encode(const pegen_args *args, int part, int parts);

/* Writes args->table, of table_bytes(args) bytes: all that encode needs of positions and operands, which then need not be
 * given. To be called again when they change. q and k are not looked at. Parts as in encode. */
int comrope_ld_prepare(const pegen_args *args, int part, int parts);
/* 0 where positions or operands are wrong. */
size_t comrope_ld_table_bytes(const pegen_args *args);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in encode. */
int comrope_ld_encode_backward(const pegen_args *args, int part, int parts);
int comrope_ld_encode_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t comrope_ld_encode_backward_workspace(const pegen_args *args);

/* From args->grad->table, which encode_backward of calls that read a table has filled, to gradients of operands and
 * positions; see pegen_grad_args. finish after all parts have come back, where an operand has a gradient. Parts as
 * in prepare. */
int comrope_ld_prepare_backward(const pegen_args *args, int part, int parts);
int comrope_ld_prepare_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes of args->grad->table; 0 where positions or operands are wrong. */
size_t comrope_ld_gradient_table_bytes(const pegen_args *args);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t comrope_ld_prepare_backward_workspace(const pegen_args *args);

/* Bytes that args->workspace must have; 0: none. */
size_t comrope_ld_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
