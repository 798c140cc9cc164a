/* relative_bias_table: relative position bias from a learned table (Swin, Liu et al., eq. 4)
 *
 * Made by pegen 0.2.0 from the description relative_bias_table with
 *   head_dim=32 heads=4 value_dim=0 window_h=7 window_w=7 skip_tokens=0 grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k                [B,4,N,32], [B,Hkv,M,32]; Hkv divides H
 *   v, out              [B,Hkv,M,32], [B,4,N,32] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: h, w
 */
#ifndef PEGEN_KERNEL_RELATIVE_BIAS_TABLE_H
#define PEGEN_KERNEL_RELATIVE_BIAS_TABLE_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "relative_bias_table was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RELATIVE_BIAS_TABLE_HEAD_DIM 32 /* channels of a row */
#define RELATIVE_BIAS_TABLE_AXES 2 /* coordinates of a position */
#define RELATIVE_BIAS_TABLE_HEADS 4 /* heads it is made for */
#define RELATIVE_BIAS_TABLE_SKIP_TOKENS 0 /* tokens at the front that pass through */
#define RELATIVE_BIAS_TABLE_VALUE_DIM 32 /* channels of a row of v and out */

/* Index of each operand in pegen_args.operands. */
enum {
  /* relative_position_bias_table: bias by displacement, query less key; the authors' [(2H-1)(2W-1), heads] is the same memory
   * shape  [13, 13, heads=4], contiguous; float32, float64, float16 or bfloat16
   * units  1
   * start  normal, standard deviation 0.02, truncated at 2
   * source Liu et al., eq. 4 */
  RELATIVE_BIAS_TABLE_OPERAND_RELATIVE_POSITION_BIAS_TABLE = 0,
  RELATIVE_BIAS_TABLE_OPERAND_COUNT = 1
};

/* What the object says of itself. */
extern const pegen_kernel relative_bias_table_kernel;

/* out = softmax(scale q k^T + bias) v; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and
 * then nothing was written. */
int relative_bias_table_attention(const pegen_args *args, int part, int parts);
/* After all parts of attention have come back, where args->split_keys is set: out, of what they left in the
 * workspace; nothing where attention_workspace is 0. Parts as in attention. */
int relative_bias_table_attention_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for a call with split_keys; 0: it is not split, or the arguments are
 * wrong. */
size_t relative_bias_table_attention_workspace(const pegen_args *args);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in attention. */
int relative_bias_table_attention_backward(const pegen_args *args, int part, int parts);
int relative_bias_table_attention_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t relative_bias_table_attention_backward_workspace(const pegen_args *args);

/* Bytes that args->workspace must have; 0: none. */
size_t relative_bias_table_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
