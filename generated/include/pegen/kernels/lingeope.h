/* lingeope: Linear GeoPE: GeoPE's rotor of the displacement between query and key
 *
 * Made by pegen 0.2.0 from the description lingeope with
 *   head_dim=64 base=100 exponent_sign=1 first=0 schedule_dim=0 value_dim=0 axes=2 layout=interleaved skip_tokens=0 inverse=false grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k                [B,H,N,64], [B,Hkv,M,64]; Hkv divides H
 *   v, out              [B,Hkv,M,64], [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: h, w
 *   blocks              21 of 3 channels each
 */
#ifndef PEGEN_KERNEL_LINGEOPE_H
#define PEGEN_KERNEL_LINGEOPE_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "lingeope was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define LINGEOPE_HEAD_DIM 64 /* channels of a row */
#define LINGEOPE_AXES 2 /* coordinates of a position */
#define LINGEOPE_HEADS 0 /* heads it is made for; 0: any number */
#define LINGEOPE_SKIP_TOKENS 0 /* tokens at the front that pass through */
#define LINGEOPE_VALUE_DIM 64 /* channels of a row of v and out */

/* Index of each operand in pegen_args.operands. */
enum {
  LINGEOPE_OPERAND_COUNT = 0
};

/* What the object says of itself. */
extern const pegen_kernel lingeope_kernel;

/* out = softmax(scale q k^T + bias) v; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and
 * then nothing was written. */
int lingeope_attention(const pegen_args *args, int part, int parts);
/* After all parts of attention have come back, where args->split_keys is set: out, of what they left in the
 * workspace; nothing where attention_workspace is 0. Parts as in attention. */
int lingeope_attention_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for a call with split_keys; 0: it is not split, or the arguments are
 * wrong. */
size_t lingeope_attention_workspace(const pegen_args *args);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in attention. */
int lingeope_attention_backward(const pegen_args *args, int part, int parts);
int lingeope_attention_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t lingeope_attention_backward_workspace(const pegen_args *args);

/* Bytes that args->workspace must have; 0: none. */
size_t lingeope_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
