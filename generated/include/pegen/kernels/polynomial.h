/* polynomial: a polynomial bias of each token's own (PaPE, appendix C)
 *
 * Made by pegen 0.2.0 from the description polynomial with
 *   head_dim=64 heads=1 axes=2 degree=3 terms=8 leading=free role=separable of=query origin=call exact_scores=false split_columns=true skip_tokens=0 grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k, q_out, k_out  [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: h, w
 */
#ifndef PEGEN_KERNEL_POLYNOMIAL_H
#define PEGEN_KERNEL_POLYNOMIAL_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "polynomial was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define POLYNOMIAL_HEAD_DIM 64 /* channels of a row */
#define POLYNOMIAL_AXES 2 /* coordinates of a position */
#define POLYNOMIAL_HEADS 0 /* heads it is made for; 0: any number */
#define POLYNOMIAL_SKIP_TOKENS 0 /* tokens at the front that pass through */

/* Channels of the rows of q_out and k_out, by their number type. Those from POLYNOMIAL_HEAD_DIM on are, in q and k alike,
 * what the score's bias needs of the query and of the key's position: scores are scale (q_out . k_out). Positions count from
 * args->origin, or the middle of args->positions. */
#define POLYNOMIAL_OUT_DIM_F32 80
/* channel: what k holds there
 *     64  h
 *     65  w
 *     66  h^2
 *     67  h w
 *     68  w^2
 *     69  h^3
 *     70  h^2 w
 *     71  h w^2
 *     72  w^3
 *     73  0
 *     74  0
 *     75  0
 *     76  0
 *     77  0
 *     78  0
 *     79  0 */
#define POLYNOMIAL_OUT_DIM_BF16 96
/* channel: what k holds there
 *     64  h
 *     65  w
 *     66  h^2
 *     67  h w
 *     68  w^2
 *     69  h^3
 *     70  h^2 w
 *     71  h w^2
 *     72  w^3
 *     73  h; q holds what rounding took
 *     74  w; q holds what rounding took
 *     75  h^2; q holds what rounding took
 *     76  h w; q holds what rounding took
 *     77  w^2; q holds what rounding took
 *     78  h^3; q holds what rounding took
 *     79  h^2 w; q holds what rounding took
 *     80  h w^2; q holds what rounding took
 *     81  w^3; q holds what rounding took
 *     82  h; k holds what rounding took
 *     83  w; k holds what rounding took
 *     84  h^2; k holds what rounding took
 *     85  h w; k holds what rounding took
 *     86  w^2; k holds what rounding took
 *     87  h^3; k holds what rounding took
 *     88  h^2 w; k holds what rounding took
 *     89  h w^2; k holds what rounding took
 *     90  w^3; k holds what rounding took
 *     91  0
 *     92  0
 *     93  0
 *     94  0
 *     95  0 */
#define POLYNOMIAL_OUT_DIM_F16 96
/* channel: what k holds there
 *     64  h
 *     65  w
 *     66  h^2 / 8
 *     67  h w / 8
 *     68  w^2 / 8
 *     69  h^3 / 64
 *     70  h^2 w / 64
 *     71  h w^2 / 64
 *     72  w^3 / 64
 *     73  h; q holds what rounding took
 *     74  w; q holds what rounding took
 *     75  h^2 / 8; q holds what rounding took
 *     76  h w / 8; q holds what rounding took
 *     77  w^2 / 8; q holds what rounding took
 *     78  h^3 / 64; q holds what rounding took
 *     79  h^2 w / 64; q holds what rounding took
 *     80  h w^2 / 64; q holds what rounding took
 *     81  w^3 / 64; q holds what rounding took
 *     82  h; k holds what rounding took
 *     83  w; k holds what rounding took
 *     84  h^2 / 8; k holds what rounding took
 *     85  h w / 8; k holds what rounding took
 *     86  w^2 / 8; k holds what rounding took
 *     87  h^3 / 64; k holds what rounding took
 *     88  h^2 w / 64; k holds what rounding took
 *     89  h w^2 / 64; k holds what rounding took
 *     90  w^3 / 64; k holds what rounding took
 *     91  0
 *     92  0
 *     93  0
 *     94  0
 *     95  0 */

/* Index of each operand in pegen_args.operands. */
enum {
  /* projection: what a term's argument is of the displacement
   * shape  [heads=1, 8, axes=2], contiguous; float32, float64, float16 or bfloat16
   * units  1 per unit of position
   * start  uniform Kaiming
   * source PaPE, eq. 6 */
  POLYNOMIAL_OPERAND_PROJECTION = 0,
  POLYNOMIAL_OPERAND_COUNT = 1
};

/* Index of each input in pegen_args.inputs: tensors with a row for each query token and head. */
enum {
  /* c1: coefficient of power 1 in each term, of the query's token
   * shape  [B,H,N,8], any strides of B, H and N; the number type of q, or float32 as all inputs are
   * units  1
   * source PaPE, appendix C */
  POLYNOMIAL_INPUT_C1 = 0,
  /* c2: coefficient of power 2 in each term, of the query's token
   * shape  [B,H,N,8], any strides of B, H and N; the number type of q, or float32 as all inputs are
   * units  1
   * source PaPE, appendix C */
  POLYNOMIAL_INPUT_C2 = 1,
  /* c3: coefficient of power 3 in each term, of the query's token
   * shape  [B,H,N,8], any strides of B, H and N; the number type of q, or float32 as all inputs are
   * units  1
   * source PaPE, appendix C */
  POLYNOMIAL_INPUT_C3 = 2,
  POLYNOMIAL_INPUT_COUNT = 3
};

/* What the object says of itself. */
extern const pegen_kernel polynomial_kernel;

/* Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then
 * nothing was written. */
int polynomial_encode(const pegen_args *args, int part, int parts);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in encode. */
int polynomial_encode_backward(const pegen_args *args, int part, int parts);
int polynomial_encode_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t polynomial_encode_backward_workspace(const pegen_args *args);

/* Bytes that args->workspace must have; 0: none. */
size_t polynomial_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
