/* verify/run_warp: what the 32 lanes of a warp do together, by the PTX ISA's definitions; see verify/run_block.h. */
#pragma once

#include <stdint.h>

enum { RUN_WARP = 32, RUN_WARP_BARRIER = -1 /* nothing is done */ };

/* What a lane has come to: an ir_warp_op that is a collective, and its words. */
typedef struct run_warp_lane {
  int op, detail;
  const int32_t *in;
  int32_t *out;
} run_warp_lane;

/* lane: RUN_WARP of them, with one op and detail. */
void run_warp_do(const run_warp_lane *const *lane);
