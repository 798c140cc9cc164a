/* interpret/program: runs a program on arrays, op by op in the order of its text.
 *
 * In: arrays of float64. Out: arrays of long double, in which everything is computed and nothing is rounded: what the
 * kernels of all targets round to. Slow and obvious; every value is kept for all indices of its spaces, NaN until it
 * is made.
 */
#pragma once

#include "program/program.h"

/* A call whose batches share their positions. Heads of q and of k; 0: not given. */
typedef struct program_call {
  int64_t tokens, batches, heads[2];
  int64_t keys;             /* of a query; heads[1] are theirs */
  bool is_causal;           /* query i sees the first i + keys - tokens + 1 */
  double scale;             /* of scores */
  const double *positions;  /* [tokens][axes] */
  const double *k_positions; /* [keys][axes]; NULL: positions */
  int side;                 /* of a description whose q and k differ, which of them the call is of: 0 or 1 */
  const double *inputs[SPEC_MAX_INPUTS]; /* [batches][heads][tokens, or keys][size, or one; of pairs keys] */
  const double *const *operands;
  /* Rows of streams that are read, [batches][heads][tokens or keys][channels]; of one tensor the first. */
  const double *rows[PROGRAM_MAX_STREAMS][2];
  long double *results[PROGRAM_MAX_STREAMS][2]; /* of streams that are written, laid out alike */
  long double *arrays[PROGRAM_MAX_ARRAYS];      /* [index of the spaces, tokens first][numbers][blocks] */
  const long double *tables[PROGRAM_MAX_VALUES]; /* of what is tabled, laid out so; NULL: computed */
  int64_t tile_tokens, group_rows, run_heads; /* where a schedule has cut tokens, rows and heads */
} program_call;

/* Numbers of a value at one index of its spaces: an eval's [numbers][blocks], a matrix' [blocks][rows][columns]. */
int64_t program_numbers(const program *p, int value);

void program_interpret(const program *p, const program_call *call);
