/* program/order: the loops of a program in another order, which schedules of targets say in a table. */
#pragma once

#include "program/program.h"

#define NO_MORE SPACE_COUNT
enum { PROGRAM_ORDER_LOOPS = 6 };

/* Loops from the outermost on, each list ended by NO_MORE: those around everything, those around what is computed of a
 * token, those around its rows. Where `held` loops of the last are open, what rows need is held; -1: nowhere. */
typedef struct program_order {
  program_space outer[PROGRAM_ORDER_LOOPS], token[PROGRAM_ORDER_LOOPS], rows[PROGRAM_ORDER_LOOPS];
  int held;
} program_order;

/* An encode program with its tokens' loops in order; loops over skipped tokens alone stay. of_each_head: the order
 * where what is computed of a token differs from head to head. of_each_row: where it differs from row to row; NULL: of
 * no program. */
const program *program_in_order(arena *a, const program *p, const program_order *shared_by_heads,
                                const program_order *of_each_head, const program_order *of_each_row);
/* An encode program of rows that turn by inputs, for calls in which heads of q and k share a token's. */
const program *program_in_order_of_tokens(arena *a, const program *p, const program_order *of_each_token);
