/* launch_chunks.h: how a call for gradients of operands and positions is cut into chunks, and what its workspace holds;
 * see launch_chunks.c. */
#pragma once

#include "launch.h"

#include "../kernel/backward.h"

enum { PEGEN_LAUNCH_NUMBER = 8 /* bytes of a pair of float32 */ };

/* One pass: the tensors that share tokens and positions. */
typedef struct pegen_gradient_pass {
  const pegen_stream *stream[2];
  int n, which; /* which: of grad->positions and k_positions; -1: neither */
  int again; /* 1: the pass before gave to the same positions */
  int by_batch; /* rotors that differ by head: positions, or what they gain, differ from batch to batch */
  int64_t items, rows, chunk, chunks;
  int64_t heads; /* whose threads are apart; 1: they share rotors */
  int64_t sums; /* chunks whose sums are apart: those of each head, where heads that are apart share operands */
  int64_t rounds; /* of launches, each of one head of every group that shares operands, with sums of its own */
} pegen_gradient_pass;

/* What the workspace holds: shares of positions and of inputs, sums of chunks, sums of those, what leaves gain; of
 * dense blocks sums of what their matrices gain, too, and the threads' own memory. Bytes from its begin. */
typedef struct pegen_gradient_places {
  int64_t shares, input_shares, sums, groups, gained, matrix_sums, matrix_groups, room, end;
} pegen_gradient_places;

typedef struct pegen_gradient_cut {
  const pegen_kernel *kernel;
  const pegen_backward_call *call; /* of as many heads of q as operands have (head_groups) */
  pegen_head_groups head_groups;
  const pegen_ptx_gradient *of;
  int64_t numbers; /* sums of a chunk */
  int64_t sum_heads; /* whose sums are kept apart in it */
  int64_t chunks, groups; /* of sums, of all passes; of PEGEN_PTX_SUM_MOST chunks */
  int n; /* of passes */
  pegen_gradient_pass pass[2];
  pegen_gradient_places at;
} pegen_gradient_cut;

/* Elements of a row of an input; of its gradient, 0 where it is not wanted. */
static inline int64_t pegen_launch_input_size(const pegen_kernel *kernel, int input) {
  return kernel->inputs[input].size > 0 ? kernel->inputs[input].size : 1;
}
/* Fills the parameters of `out`, an input's gradient, in a launch that adds it up (PEGEN_PTX_INPUTS_..). first: the
 * input's first element among those of the rows of all inputs. */
PEGEN_HIDDEN void pegen_launch_set_input(int64_t *of, const pegen_view *out, int64_t first, int64_t size, int64_t adds);
PEGEN_HIDDEN int64_t pegen_launch_input_elements(const pegen_gradient_cut *g, int input);
/* Cuts a call that asks for such gradients into chunks, by its sizes alone; the workspace is not looked at. Returns 0,
 * or PEGEN_ERROR_SIZE_OVERFLOW where launches cannot count what there is. The call is from then on one of a round
 * (pegen_take_group). */
PEGEN_HIDDEN int pegen_launch_cut(const pegen_kernel *kernel, pegen_backward_call *call, pegen_gradient_cut *g);
