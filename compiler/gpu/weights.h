/* gpu/weights: a token's gains and weights of a polynomial bias (plan/widen.h), by neighbouring lanes of a warp.
 *
 * The token's first lane makes the monomials of its coordinates in two-float arithmetic, all its lanes the gains, from
 * tables, so that the code does not grow with their number. Each of a query's lanes evaluates as many of the bias'
 * terms as the others, and the sums over terms are gathered. What lanes tell each other lies in shared memory,
 * between barriers of the warp. Columns that widen rows (gpu/widen) and those of a tile of attention (gpu/polynomial)
 * are made of it.
 */
#pragma once

#include "gpu/thread.h"
#include "gpu/widen_tables.h"

typedef struct weight_lanes {
  ir *b;
  arena *memory;
  const plan_widen *p;
  const char *prefix;     /* of the entry's tables */
  widen_tables tables;
  thread_emitter *exprs;  /* its operands and head are the caller's to set */
  ir_value shared;        /* shared memory: weight_token_bytes of each of the block's tokens */
  int lanes;              /* of a token */
  int rest;               /* bytes of a token that are the caller's own, a multiple of 16 */
  ir_value lane, token;   /* i32: of the token's lanes; of the block's tokens */
} weight_lanes;

/* Shared memory of a token: a multiple of 16. */
int weight_token_bytes(const plan_widen *p, const widen_tables *t, int lanes, int rest);
/* Lanes of a token: 8, 16 or 32, the fewest with which the tokens of a block fit in `room` bytes; 0: none. */
int weight_lanes_of(const plan_widen *p, const widen_tables *t, int rest, int64_t room);

/* Byte begin + at (an i32) of the caller's own. */
ir_value weight_rest_at(weight_lanes *w, int64_t begin, ir_value at);
ir_value weight_table_i32(weight_lanes *w, const char *table, ir_value index);

/* A loop over [0, count) of which the token's lanes take turns; ends with end_turns. */
typedef struct lane_turns {
  ir_loop loop;
  ir_branch branch;
  bool some;
  ir_value index; /* i32 */
} lane_turns;

lane_turns begin_turns(weight_lanes *w, int count);
void end_turns(weight_lanes *w, lane_turns turns);

/* In this order, with a barrier of the warp after the monomials and after the weights. Monomials: of the token's place
 * from the bias' origin; one of its lanes comes here. */
void weight_lay_monomials(weight_lanes *w, const two_float *place);
void weight_lay_gains(weight_lanes *w);
/* A sum of factors times monomials, and as float32. */
two_float weight_exact_sum_at(weight_lanes *w, const widen_sums *sums, ir_value index);
ir_value weight_sum_at(weight_lanes *w, const widen_sums *sums, ir_value index);
/* A gain that was laid. */
ir_value weight_gain_at(weight_lanes *w, ir_value gain);

/* The weights of the query, whose inputs' rows are set (emit_thread_inputs), between two barriers that are its own. */
void weight_lay_weights(weight_lanes *w);
ir_value weight_at(weight_lanes *w, ir_value index);
/* The weight that a gain multiplies. */
ir_value weight_of_gain(weight_lanes *w, ir_value gain);
/* Column `index` of the query: the sum over weights of weight times gain. */
ir_value weight_column(weight_lanes *w, ir_value index);
/* What columns leave out of the query's scores (plan_widen.constant): when all lanes have done with its columns one of
 * them lays the monomials that no column has, where gains were; then all lanes of the warp come. */
void weight_lay_constant_monomials(weight_lanes *w, const two_float *place);
ir_value weight_constant(weight_lanes *w);
