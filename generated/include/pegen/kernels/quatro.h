/* quatro: quaternion rotary embedding (CARE, section 4)
 *
 * Made by pegen 0.2.0 from the description quatro with
 *   head_dim=64 heads=1 axes=2 half_angle=false about=learned first=schedule skip_tokens=0 inverse=false grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k, q_out, k_out  [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: x, y
 *   blocks              21 of 3 channels each
 */
#ifndef PEGEN_KERNEL_QUATRO_H
#define PEGEN_KERNEL_QUATRO_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "quatro was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define QUATRO_HEAD_DIM 64 /* channels of a row */
#define QUATRO_AXES 2 /* coordinates of a position */
#define QUATRO_HEADS 0 /* heads it is made for; 0: any number */
#define QUATRO_SKIP_TOKENS 0 /* tokens at the front that pass through */

/* Index of each operand in pegen_args.operands. */
enum {
  /* theta: i, j and k of the pure quaternion that a block turns about; its length is the speed
   * shape  [axes=2, heads=1, blocks=21, 3], contiguous; float32, float64, float16 or bfloat16
   * units  half radians per unit of position
   * start  a random direction times base^(-i/blocks), base 100
   * source CARE, section 4 */
  QUATRO_OPERAND_THETA = 0,
  QUATRO_OPERAND_COUNT = 1
};

/* What the object says of itself. */
extern const pegen_kernel quatro_kernel;

/* Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then
 * nothing was written. */
int quatro_encode(const pegen_args *args, int part, int parts);

/* Writes args->table, of table_bytes(args) bytes: all that encode needs of positions and operands, which then need not be
 * given. To be called again when they change. q and k are not looked at. Parts as in encode. */
int quatro_prepare(const pegen_args *args, int part, int parts);
/* 0 where positions or operands are wrong. */
size_t quatro_table_bytes(const pegen_args *args);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in encode. */
int quatro_encode_backward(const pegen_args *args, int part, int parts);
int quatro_encode_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t quatro_encode_backward_workspace(const pegen_args *args);

/* From args->grad->table, which encode_backward of calls that read a table has filled, to gradients of operands and
 * positions; see pegen_grad_args. finish after all parts have come back, where an operand has a gradient. Parts as
 * in prepare. */
int quatro_prepare_backward(const pegen_args *args, int part, int parts);
int quatro_prepare_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes of args->grad->table; 0 where positions or operands are wrong. */
size_t quatro_gradient_table_bytes(const pegen_args *args);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t quatro_prepare_backward_workspace(const pegen_args *args);

/* What serves a token: RMS norms of q and k where they are given, encode, k and v to their caches at
 * args->slots. Parts as in encode. */
int quatro_append(const pegen_args *args, int part, int parts);

/* Bytes that args->workspace must have; 0: none. */
size_t quatro_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
