/* gpu/weight_gains: from what the weights of a polynomial bias gain to what inputs and operands do, on a GPU.
 *
 * Neighbouring lanes have a chunk of items (tokens of batches) and go through it one by one. Each lane takes the
 * gradients of a query's weights back through as many of the bias' terms as the others. What a term's inputs gain is
 * gathered by element in shared memory. What operands' halves of products gain is added to the chunk's sums, of which a
 * lane has its own terms' (gpu/finish takes them on). Rows that columns widened (gpu/widen_gains) and attention with
 * the bias in it (gpu/attention_weights) say what weights gain.
 */
#pragma once

#include "gpu/gains.h"
#include "gpu/weights.h"

typedef struct weight_gains {
  ir *b;
  const plan_widen *p;
  const plan_gradient *of; /* NULL: nothing gains of weights */
  gpu_body *body;          /* whose expressions are the lanes', too */
  gpu_gains gains;
  weight_lanes lanes;
  ir_value rooms;         /* shared memory: weight_gains_bytes of each of the block's tokens */
  ir_value first; /* i32: the first token that is encoded; null: as the description says */
  ir_value valid, stores; /* i1: the lanes have an item of their own; and it is a token that is encoded */
} weight_gains;

/* Shared memory of a token, beside that of its lanes: a multiple of 16. */
int weight_gains_bytes(const plan_widen *p, const plan_gradient *of);
/* Declares it, and the tables; body, gains.own and lanes are set. Chunks are those of PEGEN_PTX_CHUNK items. */
void weight_gains_open(weight_gains *g);
ir_value weight_gains_wanted(weight_gains *g); /* i1: inputs or operands gain */

/* A loop over the chunk's items, whose sums begin at 0; all lanes go through as many, and past the last one through
 * that again. */
ir_loop weight_gains_begin_items(weight_gains *g);

/* Where the query's inputs are, of the body's owner and a head (i32), from now on. */
void weight_gains_set_query(weight_gains *g, ir_value head);
void weight_gains_lay(weight_gains *g, ir_value weight, ir_value x); /* what a weight (i32) gains: f32 */
/* After a barrier of the warp that follows; inputs and sums gain. */
void weight_gains_give(weight_gains *g);

/* The entries of a list of a table's: [starts[index], starts[index + 1]) of `list`; `values` are carried. */
typedef struct list_loop {
  ir_loop loop;
  ir_value entry; /* i32 */
} list_loop;
list_loop weight_begin_list(weight_gains *g, const char *starts, const char *list, ir_value index, int count,
                            ir_value *values);
/* A number of a row or an input. */
ir_value weight_load_number(weight_gains *g, int dtype, ir_value at);
