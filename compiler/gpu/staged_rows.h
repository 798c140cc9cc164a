/* gpu/staged_rows: rows of a warp through shared memory.
 *
 * Where the channels of a block do not lie in whole accesses side by side, a thread that reads its own blocks makes
 * poor use of memory: every second half of a 32-byte sector an access, or a channel at a time. Here a warp
 * moves whole rows, 16 bytes a lane and neighbours side by side, into shared memory; each lane encodes its
 * unit there, with accesses as narrow as the layout needs; and the warp moves the rows on.
 */
#pragma once

#include "gpu/thread_rows.h"

typedef struct stage stage;
struct stage {
  row_thread *rows;
  /* Encodes what is in shared memory, which is all there; barriers may be in it. stage_units, or a form's own. */
  void (*encode)(stage *s, void *context);
  void *context;
  const char *memory;      /* the name of the shared array */
  int piece;               /* bytes that move together: THREAD_PIECE, or an element where rows lie anyhow */
  int flight;              /* rows of an owner at a time */
  int n_pieces;            /* that a lane moves at a time */
  ir_value warp, lane;     /* i32: warp of the block, lane of the warp */
  ir_value valid;          /* i1: the lane has a unit of a token that is encoded */
  /* one a piece of the lane, see stage_begin */
  ir_value *row, *local;   /* i32: row of the flight; bytes from the warp's part of shared memory */
  ir_value *exists;        /* i1: the lane has that many pieces; null: all have */
  ir_value *present;       /* i1: the piece's owner exists too */
  row_origin *origin;
};

/* Rows of an owner that are under way at a time, and the bytes of shared memory that a block then takes. */
int stage_flight(const plan *p, const thread_tile *t, int piece);
int64_t stage_bytes(const plan *p, const thread_tile *t, int piece, int warps);

/* owner_of: token, batch and head of owner `index` (clamped to those that exist) of the launch. */
typedef row_owner stage_owner(void *context, ir_value index);
void stage_begin(stage *s, ir_value first_owner, ir_value owners, stage_owner *owner_of, void *context);
/* Every lane's unit of every row by its coefficients. */
void stage_units(stage *s, void *context);
/* The address of byte `local` of the warp's part of shared memory. */
ir_value stage_address(stage *s, ir_value local);
/* Rows first ... first + flight - 1, those from `end` on left as they are. All lanes of the warp come here. */
void stage_rows(stage *s, ir_value first, ir_value end);
