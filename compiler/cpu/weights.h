/* cpu/weights: the weights of a polynomial bias, of one query, as code.
 *
 *     weight_w = sum over terms and products of query(inputs) * fixed(operands)
 *
 * Terms are in the lanes, and the vectors of terms are folded at the end. What operands alone say was
 * prepared for the head (emit_prepare of plan_widen's values). All of it is float32.
 */
#pragma once

#include "cpu/chunk.h"
#include "plan/widen.h"

typedef struct weight_emitter {
  ir *b;
  arena *memory;
  const plan_widen *p;
  const cpu_target *target;
  int input_dtype;  /* number_type of all inputs */
  bool *has_table;  /* see chunk_emitter */
} weight_emitter;

/* Where a query's values come from. */
typedef struct query_row {
  ir_value prepared;
  ir_value input[SPEC_MAX_INPUTS]; /* pointers to its rows */
} query_row;

/* weight[n_weights]: scalars. */
void emit_weights(weight_emitter *e, const query_row *row, ir_value *weight);

/* Vectors become the sums of their lanes. */
void emit_fold_sums(ir *b, ir_value *sums, int count);
/* Puts the numbers into the first lanes of a longer vector, zeros in the others. */
ir_value emit_lengthened(ir *b, ir_value x, int lanes);

/* Whether a leaf reads neighbouring elements from term to term, and whether all that x reads of inputs by term is read
 * so: one code in a loop serves all chunks then, which is worth it where there are more than so many. */
bool weights_in_order(const spec *s, const expr *leaf);
bool weights_are_regular(const spec *s, const expr *x);
enum { WEIGHTS_MOST_UNROLLED = 4 };
