/* spec/adjoint: gradients of expressions, by reverse mode from node to node of the DAG.
 *
 * In: expressions, each with the gradient that comes in for its value, and the nodes that gradients are wanted of. Out:
 * for each of them its gradient, as an expression in the same pool, whose parts are shared with the forward ones. What
 * a node's arguments gain is a row per operation (spec/adjoint.c), without which it does not compile.
 *
 * One expression stands for all blocks and heads, and so does its gradient: it is what the node's value in one block of
 * one head gains. An element of an operand gains the sum over all blocks, heads and tokens whose leaf reads it.
 *
 * At kinks the derivative is 0: |x| at 0, the larger of equals, the square root at 0 (so that a norm has one at the
 * origin), floor, comparisons, places in tables. A choice passes on to the chosen branch alone, and nothing of the
 * other, be it infinite or NaN: where all that comes in for a node comes through choices, 0 comes out where 0 comes in.
 *
 * Where a value is finite and what it is made of is not, slopes that are 0 count more than infinite ones: exp(-1 / x),
 * tanh(1 / x) and 1 / (1 + exp(1 / x)) have the gradient 0 at 0, which is right. A quotient whose denominator has a
 * pole gets its own slope there: 1 / (1 + 1 / x), at 0, the gradient 1.
 */
#pragma once

#include "spec/size.h"

/* An expression and the gradient that comes in for its value: a leaf (expr_cotangent), or what was computed before. */
typedef struct adjoint_output {
  const expr *value, *cotangent;
} adjoint_output;

/* gradients[i]: of node[i], which may be any node, not only a leaf: nothing passes below it then. The constant 0 where
 * no output depends on it. Gradients are float64 wherever the cotangents are. */
void adjoint_of(arena *a, expr_pool *pool, const adjoint_output *outputs, int n_outputs, const expr *const *nodes,
                int n_nodes, const expr **gradients);

/* Leaves below expressions whose gradients somebody may want. */
typedef enum adjoint_leaves {
  ADJOINT_OPERANDS = 1, /* OPERAND, ELEMENT */
  ADJOINT_INPUTS = 2,
  ADJOINT_POSITIONS = 4,
  ADJOINT_CHANNELS = 8
} adjoint_leaves;

/* What an element gains: the leaf's, in each block and head that is
 *   OPERAND   element offsets[head][block] of operand `index`
 *   ELEMENT   element offsets[head][block] + floor(arg[0]) of operand `index`: the place is evaluated, too
 *   INPUT     element offsets[block] of the query's row of input `index`
 *   POSITION  the token's coordinate on axis `index`: the sum over blocks and heads
 *   CHANNEL   component `index` of the block's row
 * to which `gradient` is added, once for each block and head, also where several leaves name one element or one leaf
 * names it in several blocks. */
typedef struct adjoint_scatter {
  const expr *leaf, *gradient;
} adjoint_scatter;

/* All of the leaves wanted (ADJOINT_ bits) that the outputs depend on, in the order in which they were made; none
 * whose gradient is 0 wherever it is evaluated. *out: in a. */
int adjoint_scatters(arena *a, expr_pool *pool, const adjoint_output *outputs, int n_outputs, unsigned wanted,
                     const adjoint_scatter **out);

/* The given expressions with nothing rounded to float32 on the way: what differences of rounded numbers lose, such as
 * 1 - cos(x) of a small x, a gradient would be short of. Leaves that are float32 stay what they are. */
void adjoint_unrounded(arena *a, expr_pool *pool, const expr *const *values, int count, const expr **out);

/* The given expressions with by[i] in place of leaves[i]. */
void adjoint_replaced(arena *a, expr_pool *pool, const expr *const *values, int count, const expr *const *leaves,
                      const expr *const *by, int n_leaves, const expr **out);

/* A limit for all gradients of a description together: four times what one expression may have (spec/size.h), since a
 * gradient takes three to four times the operations of what it is of. */
enum { ADJOINT_MOST_OPERATIONS = 4 * SIZE_MOST_OPERATIONS };

/* False after a diag_error that names what has gradients that would be too large as code. */
bool adjoint_check_size(arena *a, const spec *s);
