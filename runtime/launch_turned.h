/* launch_turned.h: rows that are turned into the workspace; see launch_turned.c. */
#pragma once

#include "launch.h"

#include "../kernel/driver.h"

typedef struct pegen_turning {
  const pegen_launch_request *request;
  const pegen_ptx_entry *entry; /* that turns rows; NULL: rows are not turned */
  int has_values; /* 1: rows of values are turned, too, and outputs back */
  int64_t group; /* times that a row of k or v is turned: once for each head of q that shares it, or 1 */
  uint64_t at; /* address of what is placed next */
  int64_t bytes; /* of the workspace up to there */
  int64_t element; /* bytes of a number of rows */
} pegen_turning;

/* The kernel's entry for the call's rows, and the workspace behind `before` bytes of it. */
PEGEN_HIDDEN void pegen_turning_begin(pegen_turning *t, const pegen_launch_request *request,
                                      const struct pegen_attention_call *call, int64_t before);
/* Room for rows of `width` channels that will come from these, `copies` of each head. 0: they are more than can be
 * counted. */
PEGEN_HIDDEN int pegen_turning_place(pegen_turning *t, const pegen_view *from, int64_t width, int64_t copies,
                                     pegen_view *turned);

/* how */
enum {
  PEGEN_TURN_QUERIES = 0,
  PEGEN_TURN_KEYS = 1,
  PEGEN_TURN_BACK = 2,
  PEGEN_TURN_SUM = 4 /* of values as they are */
};

/* Launches what turns rows, be it where they are; nothing without queries. call: as the caller gave it. */
PEGEN_HIDDEN int pegen_turning_run(const pegen_turning *t, const struct pegen_attention_call *call,
                                   const pegen_view *from, const pegen_view *to, int how, pegen_launch_run *run,
                                   void *context);
