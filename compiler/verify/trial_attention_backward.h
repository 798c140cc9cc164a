/* verify/trial_attention_backward: gradients of attention kernels on tensors, compared with the reference's. */
#pragma once

#include "verify/reference_gradient_attention.h"
#include "verify/trial_attention.h"

/* A call: what forward is given and gives, what comes in, what goes out. NULL is not asked for. */
typedef struct attention_gradients {
  const pegen_kernel *kernel; /* that wrote `out` */
  attention_trial forward; /* with lse */
  DLTensor *out;           /* forward's */
  DLTensor *g_out, *g_lse; /* g_lse: float32, strides as forward.lse; or NULL */
  DLTensor *q, *k, *v;
  DLTensor **operands; /* [n_operands], or NULL */
  DLTensor **inputs;   /* [n_inputs], or NULL */
  DLTensor *positions, *k_positions;
  uint32_t flags; /* PEGEN_GRAD_ */
} attention_gradients;

/* Random gradients coming in, of every step-th query alone, and room in a memory order for those of q, k and v, and for
 * forward's outputs. */
void attention_gradients_lay(arena *a, attention_gradients *g, const attention_trial *forward,
                             const pegen_kernel *kernel, bool has_lse, int64_t step, row_order order, uint64_t *random);
/* Lays gradients, with forward's outputs by the kernel itself. Returns the forward call's error. */
int attention_gradients_fill(arena *a, attention_gradients *g, const attention_trial *forward,
                             const pegen_kernel *kernel, bool has_lse, int64_t step, row_order order, uint64_t *random);

/* Room for operand i's, float64. */
DLTensor *attention_gradients_operand(arena *a, const spec *s, int i);

/* Room for input i's, of its type and in gaps of odd sizes. */
DLTensor *attention_gradients_input(arena *a, const attention_trial *t, int i);

/* Room like that of another call, for the same; and whether both hold the same bits. */
attention_gradients attention_gradients_room(arena *a, const attention_gradients *g);
bool attention_gradients_same(const attention_gradients *x, const attention_gradients *y);

/* Room for the gradients of the call's positions, of a number type; what is not given has none. */
void attention_gradients_of_positions(arena *a, attention_gradients *g, number_type type);

/* What args->grad is; the rest is attention_trial_args'. */
pegen_grad_args attention_gradients_args(const attention_gradients *g);

/* Whether NAME_attention_backward_finish follows: more than rows gains. */
bool attention_gradients_has_finish(const attention_gradients *g);
/* Calls in parts, from the last to the first, and then those of the sums. */
int attention_gradients_call(const pegen_kernel *kernel, const attention_gradients *g, int parts);

/* What the reference says of a call, [of q, k, v: as their tensors, batches outermost, channels last]. */
typedef struct attention_answer {
  gradient_sum *q, *k, *v;
  gradient_sum **operand;
  gradient_sum **input; /* [n_inputs][B H N size] */
  gradient_sum *positions, *k_positions; /* [N][P], [M][P], of all batches; one array where k has none of its own */
  long double score; /* the largest, 1 at least */
} attention_answer;

/* Sums of 0 of all but v, beside rows of q and k. */
attention_answer attention_answer_new(arena *a, const spec *s, const DLTensor *q, const DLTensor *k,
                                      const DLTensor *const *inputs);
attention_answer attention_gradients_answer(arena *a, const attention_gradients *g, int64_t step);

/* What errors of a call may be, in the units of the comparisons below: 2^-18, and with 16-bit rows half a unit in their
 * last place for each of those that are rounded on the way: outputs, which scores' gradients are made of; on tensor
 * cores weights of these outputs; and there what rows are multiplied by, weights and scores' gradients. */
long double attention_gradients_bound(const attention_gradients *g);

/* The largest error of rows, beyond half a unit in the last place of 16-bit types, in units of the sum of the absolute
 * values of what is added times the largest score; a factor that tensor cores round counts as the least normal number
 * of its type at least. exact: of the answer, in the order of `rows`. */
void attention_gradients_compare(const DLTensor *rows, const gradient_sum *exact, long double score,
                                 trial_error *worst);
/* The largest error of inputs' rows, measured alike. */
void attention_gradients_compare_inputs(const attention_gradients *g, const attention_answer *exact,
                                        trial_error *worst);
/* The largest error of operands' elements; `token` of the error is which operand, `channel` the element. */
void attention_gradients_compare_operands(const attention_gradients *g, const attention_answer *exact,
                                          trial_error *worst);
/* And of positions, [N][P]; `token` and `channel` of the error are the coordinate's, `head` is 1 of k's own. */
void attention_gradients_compare_positions(const attention_gradients *g, const attention_answer *exact,
                                           trial_error *worst);
