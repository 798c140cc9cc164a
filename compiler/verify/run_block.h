/* verify/run_block: one thread block of a GPU on this machine, for check and tests.
 *
 * Threads run one after the other, each as far as its next barrier: what lies between two barriers is run
 * by all threads of a warp (or block) before any goes on, in either order. So a result that a missing
 * barrier would make a matter of chance comes out wrong here in one of the orders.
 *
 * What the lanes of a warp do together (mlir/ir.h) is done when all 32 have come to it. Fragments are those of the PTX
 * ISA. mma adds up the products of a sum in float32, k ascending, and then adds c; a tensor core has another order and
 * cuts bits, so its last bits differ. The target of an asynchronous copy is 0xff, NaN in every type, from where the
 * copy begins to the wait that covers it, so what reads it too early is found.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef void thread_function(int32_t block, int32_t grid_row, int32_t thread, const int64_t *parameters);

/* Runs threads 0 ... threads - 1 of a block, a warp's 32 at a time. reverse: from the last to the first. Threads of one
 * warp (or block) that wait at different kinds of barriers are our own bug. */
void run_block(thread_function *run, int32_t block, int32_t grid_row, int threads, bool reverse,
               const int64_t *parameters);

/* What emitted code calls as a barrier; of: ir_barrier. Outside of run_block it returns at once. */
void run_block_wait(int32_t of);

/* What emitted code calls for the rest; op: ir_warp_op, in, out: words. Inside of run_block alone. Lanes of one warp
 * that come to different ones, addresses that a GPU would not take, and a thread that ends with copies under way are
 * our own bugs. */
void run_block_warp(int32_t op, int32_t detail, const int32_t *in, int32_t *out);
