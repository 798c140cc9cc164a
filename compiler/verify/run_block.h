/* verify/run_block: one thread block of a GPU on this machine, for check and tests.
 *
 * Threads run one after the other, each as far as its next barrier: what lies between two barriers is run
 * by all threads of a warp (or block) before any goes on, in either order. So a result that a missing
 * barrier would make a matter of chance comes out wrong here in one of the orders.
 */
#ifndef PEGEN_VERIFY_RUN_BLOCK_H
#define PEGEN_VERIFY_RUN_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef void thread_function(int32_t block, int32_t grid_row, int32_t thread, const int64_t *parameters);

/* Runs threads 0 ... threads - 1 of a block, a warp's 32 at a time. reverse: from the last to the first. Threads of one
 * warp (or block) that wait at different kinds of barriers are our own bug. */
void run_block(thread_function *run, int32_t block, int32_t grid_row, int threads, bool reverse,
               const int64_t *parameters);

/* What emitted code calls as a barrier; of: ir_barrier. Outside of run_block it returns at once. */
void run_block_wait(int32_t of);

#endif
