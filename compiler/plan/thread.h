/* plan/thread: which channels of a row one GPU thread owns.
 *
 * A row, or the channels of one of a head's parts, is cut into accesses of 16 bytes (or fewer). Accesses whose channels
 * mix with one another through a block belong to one thread: a unit. All threads run one code, so every unit is laid
 * over one template of accesses and blocks; where a unit has fewer (the last blocks of a row, leftover channels), what
 * it lacks is marked absent. Layouts that no template fits at 16 bytes, or whose units would not fit in a thread's
 * registers, are cut narrower; at one channel an access every layout fits.
 */
#pragma once

#include "plan/plan.h"

typedef struct thread_tile thread_tile;
struct thread_tile {
  int element, access, lanes; /* bytes of a channel and of an access; channels of an access */
  int n_units;
  int n_accesses, n_blocks;   /* of the template */
  int *access_at;             /* [n_accesses][n_units] first channel; -1: absent */
  int *block_at;              /* [n_blocks][n_units]; -1: absent */
  int *role_block, *role_component; /* [n_accesses * lanes]: what the template's channel is; block -1: passes through */
  int owners, pitch; /* of a staged tile: see below; owners 0: rows are accessed where they lie */
  const thread_tile *next; /* of a head's next part, whose units come behind; NULL */
};

/* Units of a row, those of all parts. */
static inline int thread_tile_units(const thread_tile *t) {
  int units = 0;
  for (; t; t = t->next) units += t->n_units;
  return units;
}
/* Bytes of their widest access, and of the accesses of the unit that has most. */
static inline int thread_tile_access(const thread_tile *t) {
  int widest = 0;
  for (; t; t = t->next) widest = t->access > widest ? t->access : widest;
  return widest;
}
static inline int thread_tile_unit_bytes(const thread_tile *t) {
  int most = 0;
  for (; t; t = t->next) most = t->n_accesses * t->access > most ? t->n_accesses * t->access : most;
  return most;
}

/* Channels in accesses of `access` bytes; NULL where that does not fit. */
thread_tile *thread_tile_build(arena *a, const plan *p, int element, int access);
/* The widest access that fits. */
thread_tile *thread_tile_widest(arena *a, const plan *p, int element);

/* The widest one of which two rows fit, and so many numbers more of every block. */
thread_tile *thread_tile_of_gradient(arena *a, const plan *p, int element, int of_block);

/* The tile of an entry that moves rows itself, in accesses of `access` bytes: units of one block each. */
thread_tile *thread_tile_of_blocks(arena *a, int blocks, int element, int access);

/* A row in pieces of 16 bytes, which is how a staged row moves between memory and shared memory. */
enum { THREAD_PIECE = 16 };

/* Whether a warp's accesses cover 32 bytes at a time: those of a unit that lie side by side are made one after the
 * other, and each alone would write every second half of what memory is written in. */
bool thread_tile_fills_sectors(const thread_tile *t, int head_dim);
/* Units over rows that a warp has in shared memory: rows of `owners` tokens lie there `pitch` bytes apart, lane
 * owner * n_units + unit has one unit. Accesses may be narrow there, so there are units for any layout,
 * and few blocks a thread do. NULL: a row is not made of whole pieces, pieces pass through, or no units fit. */
thread_tile *thread_tile_staged(arena *a, const plan *p, int element);
