/* plan/plan: how a kernel computes a block program.
 *
 * The matrix of a block is cut into terms, each a fixed permutation of channels inside
 * their block times a coefficient per channel (the cyclic diagonals of every
 * set of components that mix), so that a row is
 *
 *     y = A_0 * x[source_0] + A_1 * x[source_1] + ...
 *
 * over whole vectors in memory order: nothing is de-interleaved. Coefficients are
 * evaluated with blocks in the lanes, once per token (and head, where heads
 * differ), and spread over the channels. What depends on operands alone is
 * prepared once per call.
 */
#pragma once

#include "algebra/block.h"

typedef struct plan {
  const block_program *program;
  const spec *spec;
  const spec_part *part; /* whose spec it is; NULL: the whole's */
  int begin, end; /* channels of the row that it computes: all, or a part's and those that pass through beside it */
  int *block_of, *component_of; /* [head_dim]; -1: a leftover channel, passed through */

  int n_terms;
  int *source; /* [n_terms][n_components]: the component a term takes, or -1 where its coefficient is 0 */

  bool is_transposed; /* of plan_transpose */
  bool per_head; /* coefficients differ from head to head */
  bool of_rows; /* and from row to row: they are made of inputs, and no table holds them */
  int lanes; /* blocks rounded up to whole vectors: length of gathered and prepared arrays */
  int n_leaves; /* what the driver gathers: operand leaves, and tables that differ by head */
  const expr **leaf;
  int n_prepared; /* expressions of operands alone that token code uses */
  const expr **prepared;
  int *leaf_index, *prepared_index; /* by expr id; -1: not one */

  int n_values; /* what a table holds of a token (and head): entries of the matrix that differ, up to their sign */
  const expr **value;

  const struct plan *inverse; /* of plan_build_with_inverse: what turns back; else NULL */

  const struct plan *for_threads; /* the same matrix in the closed form for GPUs, where that is another; or NULL */

  int token_operations; /* arithmetic nodes per block and token, for --emit expr and bench */
} plan;

plan *plan_build(arena *a, const block_program *program);
/* Builds a plan, with that of another program of these blocks, the inverse, beside it: both are of the same leaves and
 * prepared expressions. */
plan *plan_build_with_inverse(arena *a, const block_program *program, const block_program *inverse);
/* A plan with the blocks' matrices transposed; tables hold the same values. */
plan *plan_transpose(arena *a, const plan *p);
/* What a plan says of expressions that are not a block's matrix: what the driver gathers, what is prepared, whether
 * heads differ. It has no terms and no program. */
plan *plan_of_expressions(arena *a, const spec *s, const expr *const *roots, int count);

/* Coefficient of channel `channel` in a term: an entry of the block matrix, or NULL where it is 0. */
const expr *plan_coefficient(const plan *p, int term, int channel);
/* The channel that a term takes for `channel`, or -1. */
int plan_source(const plan *p, int term, int channel);
/* A channel that no term changes: leftover, or a component whose row is the identity's. */
bool plan_is_identity(const plan *p, int channel);

/* Channels begin .. end - 1 cut into vectors of `width` lanes. The last vector starts early where width does not
 * divide their number, so that no access is masked; lanes it shares are computed twice, alike. */
typedef struct plan_tile {
  int width, n_vectors;
  int *start; /* [n_vectors] first channel */
  int *group; /* [n_vectors]: vectors of one group read each other's channels: all are loaded before any is stored */
  int n_chunks; /* blocks cut into vectors for the coefficients */
  int *chunk_begin, *chunk_width;
  int n_looped; /* the first chunks, where code for one does for all: one code in a loop; 0: none */
  int looped_slots; /* coefficient vectors of each of them, numbered chunk after chunk from 0 */
  int row_step; /* channels from each of them to the next, where a row's vectors can be walked so, too; 0: they cannot
                 */
  int *vector_chunk; /* [n_vectors]: the chunk that holds all blocks of a vector; -1: several, or none */
  int n_slots; /* coefficient vectors that are computed per token */
  int *slot; /* [n_terms][n_vectors]: index of the coefficient vector; -1: absent; -2: constant */
  int *pair; /* [n_vectors], NULL: no pairs; the first of two neighbours whose channels take turns: the even ones stand
              * in its lanes and the odd ones in the second's; -1: in order */
} plan_tile;

/* Lanes of the chunk that takes the last `blocks` blocks: a power of two; 0 of none. */
int plan_chunk_width(int blocks);

enum { PLAN_ABSENT = -1, PLAN_CONSTANT = -2 };

/* Fewer chunks than this are written out: their code is short, and its parts overlap better. */
enum { PLAN_LEAST_LOOPED = 4 };

plan_tile *plan_tile_build(arena *a, const plan *p, int width);
/* Builds a tile with another number in that one's place, 2 or more. */
plan_tile *plan_tile_looped(arena *a, const plan *p, int width, int least);

/* A tile of the same vectors, for types whose rows are read and written by pairs for less; the tile itself where
 * bringing channels together would take what that saves. Slots hold coefficients in order. */
const plan_tile *plan_tile_in_pairs(arena *a, const plan *p, const plan_tile *t);
/* Instructions that bring the channels of a term into a vector's lanes: one for two vectors, one for each one more. */
int plan_moves(const plan *p, const plan_tile *t, int term, int vector);
/* The channel in a lane. */
int plan_tile_channel(const plan_tile *t, int vector, int lane);
/* Which vector holds a channel: the one that asks, or its pair, where it can be, for then no shuffle is needed. */
int plan_tile_vector(const plan_tile *t, int channel, int asking, int *lane);

/* Text of the whole block program for --emit expr. */
void plan_print(FILE *out, const plan *p);

/* The plans of a row whose parts are blocks of several kinds, in the order of their channels. They agree in whether
 * heads differ and in `lanes`, so that what is gathered and prepared is one array of rows of one length. */
typedef struct plan_row {
  const spec *spec; /* the whole */
  int n_parts;
  plan *part[SPEC_MAX_PARTS];
  const struct plan_row *for_threads; /* the same in the closed forms for GPUs; NULL: these are */
} plan_row;
