/* pape: parabolic position encoding (PaPE, section 4)
 *
 * Made by pegen 0.2.0 from the description pape with
 *   head_dim=64 heads=1 axes=2 without=nothing parabolas=50 role=separable origin=call exact_scores=false split_columns=true skip_tokens=0 grid=.
 * Link the object that was written together with this file; it needs no library.
 *
 *   q, k, q_out, k_out  [B,H,N,64] of float32, bfloat16, float16
 *   positions           [N,2] or [B,N,2]: h, w
 */
#ifndef PEGEN_KERNEL_PAPE_H
#define PEGEN_KERNEL_PAPE_H

#include <pegen/pegen.h>

#if PEGEN_ABI_VERSION != 1
#error "pape was made for another version of pegen/pegen.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PAPE_HEAD_DIM 64 /* channels of a row */
#define PAPE_AXES 2 /* coordinates of a position */
#define PAPE_HEADS 0 /* heads it is made for; 0: any number */
#define PAPE_SKIP_TOKENS 0 /* tokens at the front that pass through */

/* Channels of the rows of q_out and k_out, by their number type. Those from PAPE_HEAD_DIM on are, in q and k alike,
 * what the score's bias needs of the query and of the key's position: scores are scale (q_out . k_out). Positions count from
 * args->origin, or the middle of args->positions. */
#define PAPE_OUT_DIM_F32 72
/* channel: what k holds there
 *     64  h
 *     65  w
 *     66  h^2
 *     67  h w
 *     68  w^2
 *     69  0
 *     70  0
 *     71  0 */
#define PAPE_OUT_DIM_BF16 80
/* channel: what k holds there
 *     64  h
 *     65  w
 *     66  h^2
 *     67  h w
 *     68  w^2
 *     69  h; q holds what rounding took
 *     70  w; q holds what rounding took
 *     71  h^2; q holds what rounding took
 *     72  h w; q holds what rounding took
 *     73  w^2; q holds what rounding took
 *     74  h; k holds what rounding took
 *     75  w; k holds what rounding took
 *     76  h^2; k holds what rounding took
 *     77  h w; k holds what rounding took
 *     78  w^2; k holds what rounding took
 *     79  0 */
#define PAPE_OUT_DIM_F16 80
/* channel: what k holds there
 *     64  h
 *     65  w
 *     66  h^2 / 8
 *     67  h w / 8
 *     68  w^2 / 8
 *     69  h; q holds what rounding took
 *     70  w; q holds what rounding took
 *     71  h^2 / 8; q holds what rounding took
 *     72  h w / 8; q holds what rounding took
 *     73  w^2 / 8; q holds what rounding took
 *     74  h; k holds what rounding took
 *     75  w; k holds what rounding took
 *     76  h^2 / 8; k holds what rounding took
 *     77  h w / 8; k holds what rounding took
 *     78  w^2 / 8; k holds what rounding took
 *     79  0 */

/* Index of each operand in pegen_args.operands. */
enum {
  /* projection: W_p: what a parabola's argument is of the displacement
   * shape  [heads=1, 50, axes=2], contiguous; float32, float64, float16 or bfloat16
   * units  1 per unit of position
   * start  uniform Kaiming
   * source PaPE, eq. 6 */
  PAPE_OPERAND_PROJECTION = 0,
  PAPE_OPERAND_COUNT = 1
};

/* Index of each input in pegen_args.inputs: tensors with a row for each query token and head. */
enum {
  /* a: W_a x: -softplus of it is the parabola's curvature, of the query's token
   * shape  [B,H,N,50], any strides of B, H and N; the number type of q, or float32 as all inputs are
   * units  1
   * source PaPE, eq. 7 */
  PAPE_INPUT_A = 0,
  /* b: W_b x: the parabola's slope, of the query's token
   * shape  [B,H,N,50], any strides of B, H and N; the number type of q, or float32 as all inputs are
   * units  1
   * source PaPE, eq. 8 */
  PAPE_INPUT_B = 1,
  PAPE_INPUT_COUNT = 2
};

/* What the object says of itself. */
extern const pegen_kernel pape_kernel;

/* Encodes q and k; part `part` of `parts`, (0, 1) does it all. Returns 0 or a pegen_error, and then
 * nothing was written. */
int pape_encode(const pegen_args *args, int part, int parts);

/* Gradients, of what args->grad asks for; see pegen_grad_args. finish after all parts have come back, where an
 * operand has a gradient. Parts as in encode. */
int pape_encode_backward(const pegen_args *args, int part, int parts);
int pape_encode_backward_finish(const pegen_args *args, int part, int parts);
/* Bytes that args->workspace must have for them; 0: none, or the arguments are wrong. */
size_t pape_encode_backward_workspace(const pegen_args *args);

/* Bytes that args->workspace must have; 0: none. */
size_t pape_workspace(const pegen_args *args);

#ifdef __cplusplus
}
#endif
#endif
