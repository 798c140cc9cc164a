/* attention_backward.h: a checked call for the gradients of attention; see attention_backward.c. */
#pragma once

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

/* Checks everything of a call of tangents in the same order: grad->q, k and v come in, grad->out and lse go out. */
PEGEN_INTERNAL int pegen_check_attention_tangent(const pegen_driver *driver, const pegen_args *args, int part,
                                                 int parts, pegen_attention_backward_call *call);

/* Float32 of a row of sums of `width` channels. */
static inline int64_t pegen_attention_pitch(int64_t width) {
  return (width + PEGEN_ATTENTION_PITCH - 1) / PEGEN_ATTENTION_PITCH * PEGEN_ATTENTION_PITCH;
}
/* Items, heads of k of a batch, are taken in units: one each, or as many as there may be chunks where operands gain. */
typedef struct pegen_attention_cut {
  int64_t items, units, chunks; /* chunks: of a unit; 0: no operand has a gradient */
  int64_t shares; /* 1: parts have the same tiles of queries in all items, which add to one number of a pair */
  int64_t keeps; /* 1: items are ordered by heads, and what is computed of pairs stays for the batches of a unit */
} pegen_attention_cut;
PEGEN_INTERNAL void pegen_attention_cut_of(const pegen_driver *driver, const pegen_attention_backward_call *call,
                                           pegen_attention_cut *cut);
/* Coordinates' sums, float64 [B][H][N][n_sums] of queries and [B][Hkv][M][n_sums] of keys, [B][H][M][n_sums] where
 * something is read of their inputs: sizes of them, whether each is wanted, and where it stands in the workspace,
 * behind all else. */
static inline void pegen_attention_place_sizes(const pegen_driver *driver, const pegen_attention_backward_call *call,
                                               int of_keys, int64_t sizes[PEGEN_VIEW_DIMS]) {
  const pegen_view *q = &call->forward.q, *rows = of_keys ? &call->forward.k : q;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) sizes[i] = rows->size[i];
  if (driver->kernel->key_inputs) sizes[PEGEN_HEAD] = q->size[PEGEN_HEAD];
}
static inline int pegen_attention_wants_places(const pegen_attention_backward_call *call, const pegen_args *args,
                                               int of_keys) {
  const pegen_view *rows = of_keys ? &call->forward.k : &call->forward.q;
  return !rows->empty && !call->g_positions[of_keys && args->k_positions].empty;
}
PEGEN_INTERNAL int pegen_attention_wants_sums(const pegen_driver *driver, const pegen_attention_backward_call *call,
                                              const pegen_args *args, int of_keys);
PEGEN_INTERNAL double *pegen_attention_place_sums(const pegen_driver *driver, const pegen_args *args,
                                                  const pegen_attention_backward_call *call, char *workspace,
                                                  int of_keys);
/* Part `part` of `parts` of what positions, and inputs of scores, gain of those. */
PEGEN_INTERNAL void pegen_attention_finish_places(const pegen_driver *driver, const pegen_args *args,
                                                  const pegen_attention_backward_call *call, char *workspace, int part,
                                                  int parts);
/* Float32 of the sums of one key: those that are wanted. */
PEGEN_INTERNAL int64_t pegen_attention_key_numbers(const pegen_attention_backward_call *call);
/* Float32 of the pairs of a tile of queries with all keys, where they are kept. */
static inline int64_t pegen_attention_pair_numbers(const pegen_attention_backward_call *call) {
  return (call->forward.k.size[PEGEN_TOKEN] + PEGEN_ATTENTION_MORE_KEYS) * PEGEN_ATTENTION_QUERIES;
}
/* Biases, and behind them sums, of a tile of each chunk, where these stand in the workspace. */
PEGEN_INTERNAL float *pegen_attention_pair_rooms(const pegen_driver *driver, const pegen_args *args,
                                                 const pegen_attention_backward_call *call, char *workspace);
/* Bytes of the sums of keys, which stand first in the workspace, and of all of it; 0: none. -1: more than can be
 * addressed. */
PEGEN_INTERNAL int64_t pegen_attention_key_bytes(const pegen_attention_backward_call *call);
PEGEN_INTERNAL int64_t pegen_attention_sequence_bytes(const pegen_driver *driver, const pegen_args *args,
                                                      const pegen_attention_backward_call *call);
/* Returns the bytes of workspace for all sequences of a call, whose rooms follow each other. A call without sequences
 * needs as much as one sequence. -1: more than can be addressed. */
PEGEN_INTERNAL int64_t pegen_attention_backward_bytes(const pegen_driver *driver, const pegen_args *args,
                                                      const pegen_attention_backward_call *call);
/* A call of sequences becomes the window of `to`, as pegen_attention_go_to. */
PEGEN_INTERNAL void pegen_attention_backward_go_to(const pegen_driver *driver, pegen_attention_backward_call *call,
                                                   int64_t from, int64_t to);
/* Part `part` of `parts` of a call or a window, whose room is at `workspace`. */
PEGEN_INTERNAL void pegen_attention_backward_run(const pegen_driver *driver, const pegen_args *args,
                                                 const pegen_attention_backward_call *call, int target,
                                                 const pegen_tuning *tuning, int part, int parts, char *workspace);
