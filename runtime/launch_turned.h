/* launch_turned.h: rows that are turned or copied into the workspace; see launch_turned.c. */
#pragma once

#include "launch.h"

#include "../kernel/driver.h"

typedef struct pegen_turning {
  const pegen_launch_request *request;
  const pegen_ptx_entry *entry; /* that turns rows; NULL: rows are not turned */
  const pegen_ptx_entry
      *copy; /* that copies rows; NULL: entries take rows of any alignment; those of kernels of before do */
  int has_values; /* 1: rows of values are turned, too, and outputs back */
  int64_t group; /* times that a row of k or v is turned: once for each head of q that shares it, or 1 */
  uint64_t at; /* address of what is placed next */
  int64_t before, bytes; /* of the workspace up to all that is placed, and up to there */
  int64_t element; /* bytes of a number of rows */
} pegen_turning;

/* The kernel's entry for the call's rows, and the workspace behind `before` bytes of it. */
PEGEN_HIDDEN void pegen_turning_begin(pegen_turning *t, const pegen_launch_request *request,
                                      const struct pegen_attention_call *call, int64_t before);
/* how */
enum {
  PEGEN_TURN_QUERIES = 0,
  PEGEN_TURN_KEYS = 1,
  PEGEN_TURN_BACK = 2,
  PEGEN_TURN_SUM = 4, /* beside the last two: of values as they are */
  PEGEN_TURN_NOT = 8 /* rows are copied as they are, where entries do not take them as they lie */
};

/* A tensor of a call, how rows come from it or go to it, and its rows as entries take them. */
typedef struct pegen_turned_rows {
  const pegen_view *given;
  pegen_view *taken;
  int how;
} pegen_turned_rows;

/* Bytes of a row in whole accesses. */
static inline int64_t pegen_turning_whole(const pegen_view *rows) {
  enum { ACCESS = 16 };
  return pegen_divide_up(rows->width, ACCESS) * ACCESS;
}

/* Room for rows that are turned, each head of keys t->group times, and for others that are not taken as they lie. Where
 * results are turned back, as many rows as are taken, they are taken where they lie if these can be. 0: they are more
 * than can be counted. */
PEGEN_HIDDEN int pegen_turning_place(pegen_turning *t, const pegen_turned_rows *rows);

/* Launches what turns the rows of `count` tensors, be it where they are, or copies them: from where they are given, or
 * with PEGEN_TURN_BACK to there. Without queries none are turned. call: as the caller gave it. */
PEGEN_HIDDEN int pegen_turning_run(const pegen_turning *t, const struct pegen_attention_call *call,
                                   const pegen_turned_rows *rows, int count, pegen_launch_run *run, void *context);
