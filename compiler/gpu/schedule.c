/* gpu/schedule: see gpu/schedule.h. */
#include "gpu/schedule.h"

#include "program/order.h"

/* An owner of rows is a token of a batch; its rows are heads, q's first and then k's. */
static const program_order shared_by_heads = {
    .outer = {SPACE_TOKENS, SPACE_BATCHES, NO_MORE},
    .token = {NO_MORE},
    .rows = {SPACE_TENSORS, SPACE_HEADS, NO_MORE},
    .held = -1,
};

/* Rotors differ from head to head: an owner is a token's head; its rows are batches, q's and k's side by side. */
static const program_order of_each_head = {
    .outer = {SPACE_TOKENS, SPACE_HEADS, NO_MORE},
    .token = {NO_MORE},
    .rows = {SPACE_BATCHES, SPACE_TENSORS, NO_MORE},
    .held = -1,
};

/* Rows turn by inputs: an owner is a token's head of a batch. Inputs serve q and k alike, so that what is computed for
 * a row of q is that of k: a thread does it once (where the sides differ they are launched one by one). */
static const program_order of_each_row = {
    .outer = {SPACE_TOKENS, SPACE_HEADS, SPACE_BATCHES, SPACE_TENSORS, NO_MORE},
    .token = {NO_MORE},
    .rows = {NO_MORE},
    .held = -1,
};

/* Gradients: what a token's torques give is made of all of its rows. A thread has some tokens; where there are many
 * batches of one position, it may have a token of some batches, for what follows a torque is linear in it. */
static const program_order gradients_of_tokens = {
    .outer = {SPACE_TOKENS, NO_MORE},
    .token = {NO_MORE},
    .rows = {SPACE_BATCHES, SPACE_TENSORS, SPACE_HEADS, NO_MORE},
    .held = -1,
};
static const program_order gradients_of_heads = {
    .outer = {SPACE_TOKENS, SPACE_HEADS, NO_MORE},
    .token = {NO_MORE},
    .rows = {SPACE_BATCHES, SPACE_TENSORS, NO_MORE},
    .held = -1,
};

const program *gpu_schedule_gradient(arena *a, const program *p) {
  return program_in_order(a, p, &gradients_of_tokens, &gradients_of_heads, &of_each_row);
}

const program *gpu_schedule(arena *a, const program *p) {
  return program_in_order(a, p, &shared_by_heads, &of_each_head, &of_each_row);
}
