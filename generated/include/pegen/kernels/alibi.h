/* alibi: attention with linear biases (Press et al.), Euclidean in several dimensions
 *
 * Made by pegen 0.2.0 from the description alibi with
 *   head_dim=64 value_dim=0 heads=8 axes=1 skip_tokens=0 grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k                [B,8,N,64], [B,Hkv,M,64]; Hkv divides H
 *   v, out              [B,Hkv,M,64], [B,8,N,64] of float32, bfloat16, float16
 *   positions           [N,1] or [B,N,1]: t
 */
#ifndef PEGEN_KERNEL_ALIBI_H
#define PEGEN_KERNEL_ALIBI_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "alibi was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ALIBI_HEAD_DIM 64 /* channels of a row */
#define ALIBI_AXES 1 /* coordinates of a position */
#define ALIBI_HEADS 8 /* heads it is made for */
#define ALIBI_SKIP_TOKENS 0 /* tokens at the front that pass through */
#define ALIBI_VALUE_DIM 64 /* channels of a row of v and out */

/* Index of each operand in pegen_args.operands. */
enum {
  ALIBI_OPERAND_COUNT = 0
};

/* What the object says of itself. */
extern const pegen_kernel alibi_kernel;

/* out = softmax(scale q k^T + bias) v; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and
 * then nothing was written. */
int alibi_attention(const pegen_args *args, int part, int parts);
/* After all parts of attention have come back, where args->split_keys is set: out, of what they left in the
 * workspace; nothing where attention_workspace is 0. Parts as in attention. */
int alibi_attention_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for a call with split_keys; 0: it is not split, or the arguments are
 * wrong. */
size_t alibi_attention_workspace(const pegen_args *args);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in attention. */
int alibi_attention_backward(const pegen_args *args, int part, int parts);
int alibi_attention_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t alibi_attention_backward_workspace(const pegen_args *args);

/* Bytes that args->workspace must have; 0: none. */
size_t alibi_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
