/* sincos: sines and cosines added to the embedding (Vaswani et al., section 3.5, in n dimensions)
 *
 * Made by pegen 0.2.0 from the description sincos with
 *   channels=64 axes=2 base=10000 arrangement=axes order= skip_tokens=0 inverse=false grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k, q_out, k_out  [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: h, w
 */
#ifndef PEGEN_KERNEL_SINCOS_H
#define PEGEN_KERNEL_SINCOS_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "sincos was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SINCOS_HEAD_DIM 64 /* channels of a row */
#define SINCOS_AXES 2 /* coordinates of a position */
#define SINCOS_HEADS 0 /* heads it is made for; 0: any number */
#define SINCOS_SKIP_TOKENS 0 /* tokens at the front that pass through */

/* Index of each operand in pegen_args.operands. */
enum {
  SINCOS_OPERAND_COUNT = 0
};

/* What the object says of itself. */
extern const pegen_kernel sincos_kernel;

/* Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then
 * nothing was written. */
int sincos_encode(const pegen_args *args, int part, int parts);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in encode. */
int sincos_encode_backward(const pegen_args *args, int part, int parts);
int sincos_encode_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t sincos_encode_backward_workspace(const pegen_args *args);

/* What serves a token: RMS norms of q and k where they are given, encode, k and v to their caches at
 * args->slots. Parts as in encode. */
int sincos_append(const pegen_args *args, int part, int parts);

/* Bytes that args->workspace must have; 0: none. */
size_t sincos_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
