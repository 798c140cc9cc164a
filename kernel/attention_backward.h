/* attention_backward.h: a checked call for the gradients of attention; see attention_backward.c. */
#ifndef PEGEN_KERNEL_ATTENTION_BACKWARD_H
#define PEGEN_KERNEL_ATTENTION_BACKWARD_H

#include "check_attention.h"
#include "gradient.h"

typedef struct pegen_attention_backward_call {
  pegen_attention_call forward;
  const pegen_grad_args *grad;
  pegen_view g_out, g_lse;  /* coming in; g_lse empty where there is none */
  pegen_view g_q, g_k, g_v; /* going out; empty where they are not wanted */
  pegen_view g_input[PEGEN_MAX_INPUTS]; /* the same */
  int64_t of_operands, of_inputs; /* 1: of some operand, of some input, too */
  pegen_view g_positions[2]; /* the same, of positions and of k_positions */
} pegen_attention_backward_call;

/* Checks everything in the order that check_attention_backward.c states; fills *call where it returns 0.
 * with_workspace: also that there is one of so many bytes as pegen_attention_backward_bytes says, and that nothing that
 * is written overlaps. */
PEGEN_INTERNAL int pegen_check_attention_backward(const pegen_driver *driver, const pegen_args *args, int part,
                                                  int parts, int with_workspace, pegen_attention_backward_call *call);

/* Float32 of a row of sums of `width` channels. */
static inline int64_t pegen_attention_pitch(int64_t width) {
  return (width + PEGEN_ATTENTION_PITCH - 1) / PEGEN_ATTENTION_PITCH * PEGEN_ATTENTION_PITCH;
}
/* Items, heads of k of a batch, are taken in units: one each, or as many as there may be chunks where operands gain. */
typedef struct pegen_attention_cut {
  int64_t items, units, chunks; /* chunks: of a unit; 0: no operand has a gradient */
} pegen_attention_cut;
PEGEN_INTERNAL void pegen_attention_cut_of(const pegen_driver *driver, const pegen_attention_backward_call *call,
                                           pegen_attention_cut *cut);
/* Coordinates' sums, float64 [B][H][N][axes] of queries and [B][Hkv][M][axes] of keys: whether each is wanted, and
 * where it stands in the workspace, behind all else. */
static inline int pegen_attention_wants_places(const pegen_attention_backward_call *call, const pegen_args *args,
                                               int of_keys) {
  const pegen_view *rows = of_keys ? &call->forward.k : &call->forward.q;
  return !rows->empty && !call->g_positions[of_keys && args->k_positions].empty;
}
PEGEN_INTERNAL double *pegen_attention_place_sums(const pegen_driver *driver, const pegen_args *args,
                                                  const pegen_attention_backward_call *call, int of_keys);
/* Part `part` of `parts` of what positions gain of those. */
PEGEN_INTERNAL void pegen_attention_finish_places(const pegen_driver *driver, const pegen_args *args,
                                                  const pegen_attention_backward_call *call, int part, int parts);
/* Float32 of the sums of one key: those that are wanted. */
PEGEN_INTERNAL int64_t pegen_attention_key_numbers(const pegen_attention_backward_call *call);
/* Bytes of the sums of keys, which stand first in the workspace, and of all of it; 0: none. -1: more than can be
 * addressed. */
PEGEN_INTERNAL int64_t pegen_attention_key_bytes(const pegen_attention_backward_call *call);
PEGEN_INTERNAL int64_t pegen_attention_backward_bytes(const pegen_driver *driver, const pegen_args *args,
                                                      const pegen_attention_backward_call *call);

#endif
