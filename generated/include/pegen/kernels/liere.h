/* liere: Lie rotational position encoding, LieRE_b (Ostmeier et al., section 4)
 *
 * Made by pegen 0.2.0 from the description liere with
 *   head_dim=64 heads=1 axes=2 block=64 prepare=float32 first=two_pi coordinates=given cells= trained= origin=0 skip_tokens=0 inverse=false grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k, q_out, k_out  [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: h, w
 *   blocks              1 of 64 channels each
 */
#ifndef PEGEN_KERNEL_LIERE_H
#define PEGEN_KERNEL_LIERE_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "liere was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define LIERE_HEAD_DIM 64 /* channels of a row */
#define LIERE_AXES 2 /* coordinates of a position */
#define LIERE_HEADS 0 /* heads it is made for; 0: any number */
#define LIERE_SKIP_TOKENS 0 /* tokens at the front that pass through */

/* Index of each operand in pegen_args.operands. */
enum {
  /* generators: raw generator of an axis: A is its upper triangle minus the transpose of that
   * shape  [axes=2, heads=1, blocks=1, 64, 64], contiguous; float32, float64, float16 or bfloat16
   * units  radians per unit of position
   * start  uniform, 0 to 2 pi (LieRE, appendix C)
   * source LieRE, section 4 */
  LIERE_OPERAND_GENERATORS = 0,
  LIERE_OPERAND_COUNT = 1
};

/* What the object says of itself. */
extern const pegen_kernel liere_kernel;

/* Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then
 * nothing was written. */
int liere_encode(const pegen_args *args, int part, int parts);

/* Writes args->table, of table_bytes(args) bytes: all that encode needs of positions and operands, which then need not be
 * given. To be called again when they change. q and k are not looked at. Parts as in encode. */
int liere_prepare(const pegen_args *args, int part, int parts);
/* 0 where positions or operands are wrong. */
size_t liere_table_bytes(const pegen_args *args);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in encode. */
int liere_encode_backward(const pegen_args *args, int part, int parts);
int liere_encode_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t liere_encode_backward_workspace(const pegen_args *args);

/* From args->grad->table, which encode_backward of calls that read a table has filled, to gradients of operands and
 * positions; see pegen_grad_args. finish after all parts have come back, where an operand has a gradient. Parts as
 * in prepare. */
int liere_prepare_backward(const pegen_args *args, int part, int parts);
int liere_prepare_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes of args->grad->table; 0 where positions or operands are wrong. */
size_t liere_gradient_table_bytes(const pegen_args *args);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t liere_prepare_backward_workspace(const pegen_args *args);

/* Bytes that args->workspace must have; 0: none. */
size_t liere_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
