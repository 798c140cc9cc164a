/* scan.h: running sums over the tokens of a sequence, in float64.
 *
 * The numbers that are summed may be angles that tokens choose (Selective RoPE, CARoPE: the inputs of
 * specs/more/selective_rope.lua and carope.lua) or logarithms of forget gates (Forgetting Transformer, FoX):
 *
 *     out[t] = state_in + in[0] + ... + in[t]
 *
 *     pegen_scan scan = {.struct_size = sizeof scan, .in = &x, .out = &sums, .state_in = &state, .state_out = &state};
 *     int error = pegen_scan_tokens(&scan, part, parts);        // or pegen_scan_parallel(&scan, threads)
 *
 * Sums are made in the order of the tokens, one addition each, whatever the number of parts and wherever a sequence is
 * cut into calls: a prompt at once, in pieces, or a token at a time with the state carried along give the same bits.
 *
 * Gradients are sums from the other end: with PEGEN_SCAN_REVERSE, `in` is the gradient of out and state_in that of
 * state_out; out is then the gradient of in, and state_out that of state_in. A period does not change them.
 */
#ifndef PEGEN_SCAN_H
#define PEGEN_SCAN_H

#include <pegen/pegen.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  PEGEN_SCAN_REVERSE = 1 /* from the last token of each sequence to its first */
};

/* Zero it, set struct_size = sizeof(pegen_scan) and what you use. Tensors are on the host. */
typedef struct pegen_scan {
  uint32_t struct_size;
  uint32_t flags; /* PEGEN_SCAN_ */
  /* [B,H,N,C] or [B,H,N] of float32, float64, float16 or bfloat16; any strides, channels adjacent. */
  const DLTensor *in;
  DLTensor *out; /* in's shape, float32 or float64; may be `in` itself */
  /* What sums begin with, and what they have come to: float64, [B,H,C] or [B,H], of sequences [S,H,C] or [S,H], any
   * strides, channels adjacent. NULL: they begin with 0; it is not wanted. One tensor may be both. */
  const DLTensor *state_in;
  DLTensor *state_out;
  /* int32 [S+1], adjacent, from 0 to N, never falling; then B is 1 and sums begin anew at each sequence. */
  const DLTensor *cu_seqlens;
  /* What is written is less whole periods, within half of one around 0; 0: as it is. Angles of 2 pi so keep a float32's
   * digits however long the text is. States are not: they hold the sum. */
  double period;
} pegen_scan;

/* 0 or a pegen_error; nothing is written where it refuses. Pure and on the caller's stack (8 KiB), as kernels are; all
 * parts together are the whole. SCAN: shapes, a period, flags; DTYPE, SEQUENCES, OVERLAP and the like as of kernels. */
int pegen_scan_tokens(const pegen_scan *scan, int part, int parts);

/* Computes the whole scan in so many parts at once, on threads of its own, as pegen_parallel. */
int pegen_scan_parallel(const pegen_scan *scan, int threads);

#ifdef __cplusplus
}
#endif
#endif
