/* verify/run_threads: a kernel's PTX entries on this machine, one thread after the other, for check and tests.
 *
 * The bodies that become PTX are compiled for the host (gpu/entries.h), and the launcher's own plan
 * says which blocks and threads there are, so all of a GPU call but the hardware is
 * run: argument checks, choice of entry, grid, addresses, arithmetic.
 */
#pragma once

#include "spec/spec.h"
#include "verify/run.h"
#include "verify/run_block.h"

/* As run_load, from the description; the kernel's encode entry runs the threads (all in part 0), with
 * `gradients` that of gradients too; its tensors are the host's. threads: how many the pretended device needs to be
 * busy. */
loaded_kernel *run_load_threads(arena *a, const spec *s, const char *target, unsigned dtypes, int optimize,
                                int64_t threads, bool gradients);

/* Runs a grid of thread blocks; barriers: whether the entry has any, reverse: from the last thread to the first. */
void run_threads_grid(thread_function *run, int64_t grid_x, int64_t grid_y, int threads, bool barriers, bool reverse,
                      const int64_t *parameters);

/* Whether a call launches an entry on tensor cores, which rounds weights to the rows' type before it multiplies them;
 * false of a processor's kernel, and of a call that is refused. Nothing is run. */
bool run_threads_rounds_weights(const pegen_kernel *kernel, bool backward, const pegen_args *args);

/* Whether a call of attention launches a tile program (gpu/mma.h), whose blocks with numbers that are not finite are
 * made again in another order of sums. */
bool run_threads_has_tiles(const pegen_kernel *kernel, const pegen_args *args);

/* Whether the call goes to an entry that turns rows, which rounds them to their type. */
bool run_threads_rounds_rows(const pegen_kernel *kernel, bool backward, const pegen_args *args);

/* The name of the entry that was run last; NULL before the first. */
const char *run_threads_entry(const pegen_kernel *kernel);
