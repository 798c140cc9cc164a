/* fold.h: an orthogonal change of basis, multiplied into the weights of q and k once instead of into q and k at every
 * token.
 *
 * Where the learned generators of a block of channels commute, A = S (+ lambda_k J) S^T, a kernel that turns by
 * exp(theta A) can leave S to the weights: S in front of both q and k cancels in scores, and with S^T in W_q and W_k
 * what remains are plane rotations at the frequencies lambda_k. That is what `-D basis=folded` compiles of descriptions
 * that offer it (ComRoPE, STRING). Scores equal those of the unfolded kernel to 2^-18 of |q||k| and better.
 *
 *     pegen_fold fold = {.struct_size = sizeof fold, .rule = PEGEN_SKEW_DIFFERENCE, .head_dim = 64,
 *                        .generators = &F, .frequencies = &lambda, .q_weight = &W_q, .k_weight = &W_k};
 *     int error = pegen_fold_basis(&fold);      // then lambda is the operand `frequencies` of the folded kernel
 */
#ifndef PEGEN_FOLD_H
#define PEGEN_FOLD_H

#include <pegen/pegen.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a skew matrix A is made of a raw one F, as the description says (pe.learned.skew, from = ...). */
enum {
  PEGEN_SKEW_UPPER = 0,     /* triu(F, 1) - triu(F, 1)^T; the rest of F is not read */
  PEGEN_SKEW_DIFFERENCE = 1 /* F - F^T */
};

/* Zero it, set struct_size = sizeof(pegen_fold) and what you use. All tensors are on the host, with any strides; raw
 * matrices are float32, float64, float16 or bfloat16, all others float32 or float64. Either `generators` or `cayley` is
 * given.
 *
 * Weights are [heads * head_dim, inputs], so that q = W x and row h * head_dim + c makes channel c of head h; a weight
 * stored the other way round is the same tensor with its strides exchanged. Biases are [heads * head_dim].
 * Whatever is NULL is left out; heads of q and k may differ in number where all share their matrices. */
typedef struct pegen_fold {
  uint32_t struct_size;
  int32_t rule;     /* PEGEN_SKEW_ */
  int32_t head_dim; /* D */
  int32_t reserved; /* 0 */
  /* Generators of blocks [Hg,G,b,b], raw; Hg heads, or 1 where all share them; b from 2 to 64. Block g holds the
   * channels from g b on ("interleaved"). Each block of the weights is multiplied by S^T from the left, which puts
   * plane k into its channels 2k and 2k + 1; the last of an odd block and channels of no block stay. */
  const DLTensor *generators;
  DLTensor *frequencies; /* [Hg,G,b/2] (rounded down), written: lambda_k >= 0, descending, radians per unit of theta.
                            May be NULL */
  /* Raw matrices of a change of basis of the head, [D,D] for all heads or [Hc,D,D]: each head of the weights is
   * multiplied by (I - A)(I + A)^-1 from the left. */
  const DLTensor *cayley;
  DLTensor *q_weight, *k_weight, *q_bias, *k_bias; /* changed in place */
} pegen_fold;

/* 0 or a pegen_error; nothing is written where it refuses. RANK, SHAPE_MISMATCH, HEADS, DTYPE, OPERAND_DTYPE,
 * OPERAND_SHAPE, DEVICE, NULL_DATA, ALIGNMENT and the like are about tensors; NOTHING_TO_DO: neither generators nor
 * cayley, or both; OVERLAP: two outputs begin at one address (fold a weight that q and k share once); NO_MEMORY. A raw
 * matrix that is not finite makes its block (or head) NaN and leaves the others right. Not for two threads at one
 * weight; folding twice folds twice. */
int pegen_fold_basis(const pegen_fold *fold);

#ifdef __cplusplus
}
#endif
#endif
