/* rope_mixed: rotary position embedding with learned mixed frequencies (Heo et al., eq. 13-14)
 *
 * Made by pegen 0.2.0 from the description rope_mixed with
 *   head_dim=64 heads=1 axes=2 layout=interleaved rotary_dim=0 precision=exact order= skip_tokens=0 inverse=false grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k, q_out, k_out  [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: h, w
 *   blocks              32 of 2 channels each
 */
#ifndef PEGEN_KERNEL_ROPE_MIXED_H
#define PEGEN_KERNEL_ROPE_MIXED_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "rope_mixed was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ROPE_MIXED_HEAD_DIM 64 /* channels of a row */
#define ROPE_MIXED_AXES 2 /* coordinates of a position */
#define ROPE_MIXED_HEADS 0 /* heads it is made for; 0: any number */
#define ROPE_MIXED_SKIP_TOKENS 0 /* tokens at the front that pass through */

/* Index of each operand in pegen_args.operands. */
enum {
  /* freqs: frequency of a pair of channels on an axis
   * shape  [axes=2, heads=1, blocks=32], contiguous; float32, float64, float16 or bfloat16
   * units  radians per unit of position
   * start  for each head a random direction phi, for each pair base^(-4j/D) (cos phi, sin phi), base 10
   * source Heo et al., eq. 13-14 */
  ROPE_MIXED_OPERAND_FREQS = 0,
  ROPE_MIXED_OPERAND_COUNT = 1
};

/* What the object says of itself. */
extern const pegen_kernel rope_mixed_kernel;

/* Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then
 * nothing was written. */
int rope_mixed_encode(const pegen_args *args, int part, int parts);

/* Writes args->table, of table_bytes(args) bytes: all that encode needs of positions and operands, which then need not be
 * given. To be called again when they change. q and k are not looked at. Parts as in encode. */
int rope_mixed_prepare(const pegen_args *args, int part, int parts);
/* 0 where positions or operands are wrong. */
size_t rope_mixed_table_bytes(const pegen_args *args);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in encode. */
int rope_mixed_encode_backward(const pegen_args *args, int part, int parts);
int rope_mixed_encode_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t rope_mixed_encode_backward_workspace(const pegen_args *args);

/* From args->grad->table, which encode_backward of calls that read a table has filled, to gradients of operands and
 * positions; see pegen_grad_args. finish after all parts have come back, where an operand has a gradient. Parts as
 * in prepare. */
int rope_mixed_prepare_backward(const pegen_args *args, int part, int parts);
int rope_mixed_prepare_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes of args->grad->table; 0 where positions or operands are wrong. */
size_t rope_mixed_gradient_table_bytes(const pegen_args *args);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t rope_mixed_prepare_backward_workspace(const pegen_args *args);

/* What serves a token: RMS norms of q and k where they are given, encode, k and v to their caches at
 * args->slots. Parts as in encode. */
int rope_mixed_append(const pegen_args *args, int part, int parts);

/* Bytes that args->workspace must have; 0: none. */
size_t rope_mixed_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
