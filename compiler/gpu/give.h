/* gpu/give: what scores gain goes on to what pairs read beside products: operands, coordinates, inputs.
 *
 * A warp has laid what its pairs gain in shared memory, as they stand in the tile, and walks over its own rows: a lane
 * has one row, or a part of its columns. So nothing here asks how a schedule spreads a tile over registers.
 *
 * Where an element stands by itself (a slope), a thread sums what its pairs give it in two-float arithmetic, and a
 * warp's threads are added up in order: sums that are kept from tile to tile behind the last one, others behind each.
 * Where a place is computed (a table of displacements), a warp lays 32 gains and their places side by side, and each of
 * its lanes goes through all of them in order and takes those whose place is its own: places are dealt out to lanes by
 * their last five bits. A warp's sums of elements are its own, in memory that no other touches. What an own token gains
 * is summed along its row, and added to what is the token's by one lane.
 */
#pragma once

#include "base/number.h"
#include "gpu/attention.h"

typedef struct attend_give_rows {
  ir_value memory;
  int pitch, bytes; /* from row to row; of a number: float32, or in the rows' type of 16 bits */
} attend_give_rows;

typedef struct attend_give {
  attend *t;
  const ir_value *gradient; /* parameters from PEGEN_PTX_ATTENTION_G_OUT on */
  bool of_keys; /* own rows are keys */
  ir_value warp, lane; /* i32: of the block, of the warp */
  ir_value gains, products; /* shared memory, [own][pitch] float32; products in powers of two, where scores read them */
  int pitch, columns; /* columns: streamed tokens of a tile */
  int rows, together; /* of a warp; of them `together` stand side by side, then those of the other warps */
  ir_value numbers; /* shared memory: attend_give_bytes */
  int kept; /* elements that stand by themselves, from the first on, whose sums are kept there from tile to tile */
  ir_value own_first, streamed_first; /* i32: first tokens of the tiles */
  ir_value owner; /* i32: the head that tokens' shares are of: of q, or of k where heads of q share them */
  attend_give_rows own, streamed; /* rows of q and k that rotated pairs read, in shared memory */
  ir_value scale; /* f32: what a product gains times this is what q . R k does, by those rows */
} attend_give;

/* A pair of the lane's; gained: what its score does, 0 where it is not encoded. */
typedef struct attend_give_pair {
  ir_value row, column, gained; /* of the tile */
  attend_pair_of of;
} attend_give_pair;

int attend_give_single(const attention_plan *p); /* elements that stand by themselves */
int64_t attend_give_bytes(int kept);

/* What a product gains of what its score does, by the plan's `gain`. product: in powers of two. */
ir_value attend_product_gain(attend *t, ir_value gained, ir_value product, const attend_pair_of *of);

/* Adds what a pair gives to sums. */
typedef void attend_give_visit(void *context, attend_give *g, const attend_give_pair *pair, ir_value *sums);

/* ---- elements of operands ---- */

ir_value attend_operands_wanted(attend_give *g); /* i1 */
void attend_clear_elements(attend_give *g); /* the warp's sums, once a block */
void attend_begin_operands(attend_give *g); /* of a tile of own rows */
void attend_give_operands(attend_give *g); /* of a streamed tile's pairs */
void attend_end_operands(attend_give *g);
enum { GIVE_MOST_TOGETHER = 16 };
typedef struct attend_give_list {
  int count;
  const adjoint_scatter *of[GIVE_MOST_TOGETHER];
} attend_give_list;
void attend_add_sum(ir *b, ir_value *sums, int i, two_float x); /* to that of leaf i */
/* Two sums (hi, lo) of the tile's pairs for each leaf of the list, which are added up to their elements; visit has the
 * list as its context. */
void attend_give_elements(attend_give *g, attend_give_list *list, attend_give_visit *visit);

/* ---- own tokens ---- */

/* The sums over its columns of the lane's row, n of them: where its first lane calls (attend_if_first) they are whole.
 */
void attend_sum_rows(attend_give *g, int n, attend_give_visit *visit, void *context, ir_value *sums);
ir_branch attend_if_first(attend_give *g); /* and the row's token exists */
ir_value attend_own_token(attend_give *g); /* i32: the lane's */

void attend_begin_tokens(attend_give *g);
void attend_clear_shares(attend_give *g);
/* What a visitor sums of coordinates (a bit each) goes to tokens' shares; and what the plan's expressions give. */
void attend_give_shares(attend_give *g, unsigned axes, attend_give_visit *visit, void *context);
void attend_give_tokens(attend_give *g);

/* ---- gpu/give_columns.c: what weights and coordinates gain of a bias that is a polynomial ---- */

void attend_clear_weights(attend_give *g); /* of own queries, at PEGEN_PTX_ATTENTION_WEIGHTS */
void attend_give_weights(attend_give *g);
void attend_give_moves(attend_give *g); /* nothing where coordinates gain nothing */

/* ---- gpu/give_torques.c: both, of rotations that pairs have; nothing where they have none ---- */

/* Operands (bits) that gain of them, where no place is computed. */
unsigned attend_turning_operands(const attention_plan *p);
/* Gives what a tile's products gain, which stands in place of what scores do. */
void attend_give_torques(attend_give *g);
