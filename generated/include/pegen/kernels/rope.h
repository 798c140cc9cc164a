/* rope: rotary position embedding (Su et al., RoFormer, eq. 14-15)
 *
 * Made by pegen 0.2.0 from the description rope with
 *   head_dim=64 base=10000 layout=interleaved rotary_dim=0 rotary_from=0 proportional=false factors=1 scaling=none factor=1 original_max_position=8192 beta_fast=32 beta_slow=1 truncate=true attention_factor=0 low_freq_factor=1 high_freq_factor=4 skip_tokens=0 inverse=false grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k, q_out, k_out  [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,1] or [B,N,1]: t
 *   blocks              32 of 2 channels each
 */
#ifndef PEGEN_KERNEL_ROPE_H
#define PEGEN_KERNEL_ROPE_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "rope was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ROPE_HEAD_DIM 64 /* channels of a row */
#define ROPE_AXES 1 /* coordinates of a position */
#define ROPE_HEADS 0 /* heads it is made for; 0: any number */
#define ROPE_SKIP_TOKENS 0 /* tokens at the front that pass through */

/* Index of each operand in pegen_args.operands. */
enum {
  ROPE_OPERAND_COUNT = 0
};

/* What the object says of itself. */
extern const pegen_kernel rope_kernel;

/* Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then
 * nothing was written. */
int rope_encode(const pegen_args *args, int part, int parts);

/* Writes args->table, of table_bytes(args) bytes: all that encode needs of positions and operands, which then need not be
 * given. To be called again when they change. q and k are not looked at. Parts as in encode. */
int rope_prepare(const pegen_args *args, int part, int parts);
/* 0 where positions or operands are wrong. */
size_t rope_table_bytes(const pegen_args *args);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in encode. */
int rope_encode_backward(const pegen_args *args, int part, int parts);
int rope_encode_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t rope_encode_backward_workspace(const pegen_args *args);

/* From args->grad->table, which encode_backward of calls that read a table has filled, to gradients of operands and
 * positions; see pegen_grad_args. finish after all parts have come back, where an operand has a gradient. Parts as
 * in prepare. */
int rope_prepare_backward(const pegen_args *args, int part, int parts);
int rope_prepare_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes of args->grad->table; 0 where positions or operands are wrong. */
size_t rope_gradient_table_bytes(const pegen_args *args);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t rope_prepare_backward_workspace(const pegen_args *args);

/* What serves a token: RMS norms of q and k where they are given, encode, k and v to their caches at
 * args->slots. Parts as in encode. */
int rope_append(const pegen_args *args, int part, int parts);

/* Bytes that args->workspace must have; 0: none. */
size_t rope_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
