/* cpu/schedule: loop orders; see cpu/schedule.h. */
#include "cpu/schedule.h"

#include "program/order.h"
#include "program/passes.h"

/* All heads share a token's rotor. Rotors of a tile of tokens are built; then, batch by batch, each group of rows is
 * walked over the tile. The driver chooses the sizes: a tile of one token and all rows in one group stream [B,N,H,D]
 * memory; where a head's tokens are neighbours, a few heads at a time over a long tile keep the streams few and long.
 */
static const program_order shared_by_heads = {
    .outer = {SPACE_TILES, NO_MORE},
    .token = {SPACE_TOKENS, NO_MORE},
    .rows = {SPACE_BATCHES, SPACE_GROUPS, SPACE_TOKENS, SPACE_TENSORS, SPACE_HEADS, NO_MORE},
    .held = 3,
};

/* Rotors differ from head to head. Rotors of a tile of tokens are built for as many heads as there is room for; then,
 * batch by batch, the tile's rows are walked in order of memory. */
static const program_order of_each_head = {
    .outer = {SPACE_RUNS, SPACE_TILES, NO_MORE},
    .token = {SPACE_TOKENS, SPACE_HEADS, NO_MORE},
    .rows = {SPACE_BATCHES, SPACE_TOKENS, SPACE_HEADS, SPACE_TENSORS, NO_MORE},
    .held = 3,
};

/* Rotors differ from row to row: those of a tile of tokens of one head are built, and then its rows are turned. Where a
 * token's heads are neighbours in memory, tiles are of one token and runs of all heads; where a head's tokens are, runs
 * are of one head. So sums of gradients are taken in an order that no tile changes. */
static const program_order of_each_row = {
    .outer = {SPACE_BATCHES, SPACE_RUNS, SPACE_TENSORS, SPACE_TILES, SPACE_HEADS, NO_MORE},
    .token = {SPACE_TOKENS, NO_MORE},
    .rows = {SPACE_TOKENS, NO_MORE},
    .held = 1,
};

/* Rows differ by their tokens alone: the same, but for batches, which have inputs of their own. */
static const program_order of_each_token = {
    .outer = {SPACE_BATCHES, SPACE_TILES, NO_MORE},
    .token = {SPACE_TOKENS, NO_MORE},
    .rows = {SPACE_GROUPS, SPACE_TOKENS, SPACE_TENSORS, SPACE_HEADS, NO_MORE},
    .held = 2,
};

const program *cpu_schedule(arena *a, const program *p) {
  return program_in_order(a, program_run(a, p, "product"), &shared_by_heads, &of_each_head, &of_each_row);
}

const program *cpu_schedule_of_tokens(arena *a, const program *p) {
  return program_in_order_of_tokens(a, program_run(a, p, "product"), &of_each_token);
}
