/* plan/attention: how attention is computed: what is a constant of the kernel, and the shape of its tiles.
 *
 *     out_i = sum_j p_ij v_j / sum_j p_ij,   p_ij = 2^(s_ij - max_j s_ij),
 *     s_ij = log2(e) (scale q_i . k_j + bias(r_j - r_i)), or log2(e) scale (q_i . k_j + bias(r_j - r_i)) of a
 *     polynomial, or log2(e) score(s, r_j - r_i, i, j) of s = scale q_i . k_j, with a polynomial scale (q_i . k_j +
 *     bias(r_j - r_i)),
 *
 * over tiles of keys with a running maximum (Milakov and Gimelshein's online softmax), so that scores
 * are never stored beyond a tile.
 */
#pragma once

#include "algebra/torque.h"
#include "kernel/attention.h"
#include "plan/mask.h"
#include "plan/widen_gradient.h"
#include "spec/adjoint.h"
#include "target/processor.h"

#include <stdio.h>

/* What rotations of pairs are made of gains, of a pair's torques tau[basis.count], cotangents 1, 2, ...: float64
 * expressions of the displacement. */
typedef struct attention_torques {
  torque_basis basis;
  int n_scatters; /* of operands */
  adjoint_scatter *scatter;
  const expr **place; /* [n_axes] of the displacement; NULL where it is 0 */
} attention_torques;

/* A part of a score that is made of the query and one coordinate of the key: processors compute it once for each
 * coordinate that keys have, not for each key. Or of the displacement along the only axis: for each that a tile has. */
typedef struct attention_strip {
  const expr *value;
  int axis; /* or ATTENTION_OF_DISPLACEMENT */
} attention_strip;

enum { ATTENTION_MAX_STRIPS = 4, ATTENTION_OF_DISPLACEMENT = -1 };

typedef struct attention_plan {
  const spec *spec;
  int head_dim, value_dim;
  const plan_widen *columns; /* of a bias that is a polynomial: monomials of the key's position, and a query's factors
                              * of them, which are summed as further channels of q . k; NULL: none */
  const plan_gradient *weights; /* what inputs and operands gain of the same; NULL: nothing */
  const expr *bias;      /* of the displacement, in powers of two, float32; NULL: none */
  const expr *score; /* in place of product and bias, in powers of two, float32, of the same and of POSITION
                      * SPEC_OF_SCORE, the product in powers of two; NULL: none */
  const expr *sink; /* of the head, in powers of two, float32: a score more of every query, whose value is 0; NULL:
                     * none */
  const expr *gain;  /* of a score: what the product gains of what the score does (cotangent 0) */
  int n_places;      /* coordinates that pairs are computed from: those of positions, if these are asked for, and */
  int n_numbers;     /* numbers of tokens behind them, in all no more than SPEC_MAX_AXES */
  pegen_attention_number number[SPEC_MAX_AXES];
  int n_strips;
  attention_strip strip[ATTENTION_MAX_STRIPS];
  bool hides;            /* the bias may be -infinity: the key is not seen */
  const attention_mask *mask; /* of a bias that hides: what is asked of tiles; NULL: nothing */
  const expr **matrix; /* [n_components][n_components] of a block, of the displacement, float32; NULL: no rotation */
  const expr *
      *mirror; /* [n_components]: the matrix is (I - t t^T) D (algebra/block.h), and this is t; NULL: it is not */
  bool *flipped;       /* [n_components]: D is -1 there */
  int n_coefficients;  /* what a pair is turned by: t, or [n_components][n_components] of the matrix */
  int n_entries; /* distinct ones of them, those that differ in sign alone counted once */
  const expr **entry;
  int *entry_of; /* [n_coefficients]: index of entry; -1: it is 0 */
  bool *entry_negated; /* [n_coefficients] */
  int n_shared; /* what the entries compute of a displacement that does not differ from block to block */
  const expr **shared;
  int n_leaves; /* numbers that the driver gathers for a head */
  const expr **leaf;
  int *leaf_index; /* by expr id; -1: none */
  unsigned indexed; /* operands that are read by index */
  bool per_head;
  bool by_tiles; /* a dear bias off the grid: computed for a tile of keys, by one code that all number types share */
  bool by_rows; /* on the grid: pair functions are tabulated along its last axis */
  bool wants_grid; /* none is built in; with one, which the description has an option for, they would be tabulated */
  int operations; /* arithmetic nodes of a pair's bias and of a block's rotation */
  int own_operations; /* those of its bias or score alone */
  /* What elements of operands gain of a pair's bias: float32 expressions of the displacement and of what the score
   * gains (cotangent 0). The index of an ELEMENT is leaf->arg[0]. */
  int n_scatters;
  const adjoint_scatter *scatter;
  int n_sinks, first_sink; /* the same of a sink: sums of them are behind all others */
  const adjoint_scatter *of_sink;
  const expr **place; /* [n_places, n_axes at least] what a displacement's coordinates gain of the bias, the same; NULL
                       * where it is 0 */
  const attention_torques *torques; /* NULL: there are none, or on the grid no operand's */
  bool has_places; /* coordinates of positions have gradients: not on the grid, where none are given */
  int n_sums; /* coordinates that gains are summed of: of positions, of inputs behind them; 0: none */
  bool sums_inputs; /* some of them are numbers that inputs are read for */
  int sum_width; /* numbers of a token's sums: those, and behind them all elements of each row that is read at computed
                  * places, in the order of `number` (attention_first_element) */
  int n_row_scatters; /* what such elements gain: as `scatter`, of leaves INPUT_AT */
  const adjoint_scatter *row_scatter;
  bool of_operands; /* gradients of operands alone (attention_plan_operands) */
  bool of_turned; /* gradients of rows that come turned (attention_plan_turned_gradient) */
  /* Rotations that leave the pairs (algebra/relative.h): processors turn rows of q and k instead, once each. */
  const char *stays; /* of rotations: why they stay on the pairs; NULL: rows are turned, or nothing is */
  const spec *rows; /* the separable description of a row; NULL: rows are not turned */
  const struct plan *turned; /* its plan, which the form makes (forms/attention.c) */
  bool turns_values; /* rows of v as those of k, and outputs back: all of them are float32 on their way */
} attention_plan;

/* Whether pairs have something of their own: a bias, a rotation, a score. */
bool attention_has_pairs(const attention_plan *p);
/* Whether gradients rotate the rows that values make, once for each tile of queries, where pairs are rotated. */
bool attention_turns_pairs_and_values(const attention_plan *p);
/* Whether, in such gradients, rows of out and of its gradient come rotated, by lane. */
bool attention_gains_by_turned_values(const attention_plan *p);
/* Whether there is something of positions in it. */
bool attention_is_placed(const attention_plan *p);

attention_plan *attention_plan_build(arena *a, const spec *s);
/* Adapts a plan to a target: a bias is not tabulated along rows that fill half of its registers at most, whose other
 * lanes would be empty. */
const attention_plan *attention_plan_on(arena *a, const attention_plan *p, const cpu_target *target);
/* The plan of the forward kernel, whose rows come rotated where they can: then it has no matrix, and no tables of a
 * grid. */
const attention_plan *attention_plan_forward(arena *a, const attention_plan *p, const cpu_target *target);
/* The plan of gradients and, where operands that rotate the grid's tabulated pairs gain, of operands alone: pairs are
 * then computed one by one, as off the grid. NULL: the first does it all. */
const attention_plan *attention_plan_gradient(arena *a, const attention_plan *p, const cpu_target *target);
const attention_plan *attention_plan_operands(arena *a, const attention_plan *p);
/* The plan of gradients of rows that come rotated and are rotated back. It has no gradients of coordinates; operands
 * have theirs only where none of them rotates. NULL: rows are not rotated. */
const attention_plan *attention_plan_turned_gradient(arena *a, const attention_plan *p, const cpu_target *target);
/* Whether rows of queries and keys come turned. */
bool attention_is_turned(const attention_plan *p);
/* Whether outputs that are finite prove that nothing of a key or value that is not came into them. A score may be a
 * number where its product is none. */
bool attention_tells(const attention_plan *p);
/* Whether scatter i is to a computed place, and the first of those over as many terms. */
bool attention_begins_terms(const adjoint_scatter *scatters, int i);
/* Whether a bias by tiles is that of all batches which have the same places. */
bool attention_keeps_biases(const attention_plan *p);
/* Whether gradients keep what they compute of pairs for batches where these are alike: a bias by tiles, and elements
 * that gain at computed places. */
bool attention_keeps_pairs(const attention_plan *p);
/* Whether a pair gives coordinates anything: a table's places do not. */
bool attention_moves(const attention_plan *p);
/* Whether a dear bias, or part of a score, is a function of the displacement alone, along one axis: of tokens in order
 * few differ. */
bool attention_has_runs(const attention_plan *p);
/* Whether number i is where a row is; whether it is a pair's own. */
bool attention_is_row(const attention_plan *p, int i);
bool attention_is_pair(const attention_plan *p, int i);
/* The coordinate that says where rows of an input are which elements are read of at computed places. */
int attention_row_place(const attention_plan *p, int input);
/* The first of such an input's elements among a token's sums. */
int attention_first_element(const attention_plan *p, int input);
/* Where they stand among those of queries' rows, or of keys', alone (kernel/attention_row_gains.h); their number. */
int attention_row_element(const attention_plan *p, int input);
int attention_row_elements(const attention_plan *p, bool of_keys);
int attention_strip_of(const attention_plan *p, const expr *x); /* -1: it is none */
/* Whether pairs read something of inputs. */
bool attention_reads_inputs(const attention_plan *p);
void attention_plan_print(FILE *out, const attention_plan *p);

/* Tiles of a target. Queries are in the lanes: a score's row holds vectors * lanes of them. The accumulators,
 * rows * vectors and channels * vectors, fill the registers. */
typedef struct attention_shape {
  int lanes; /* float32 in a register */
  int vectors; /* registers of queries */
  int queries; /* numbers of a row: vectors * lanes, those of the wider tile of a narrow one, too */
  int rows; /* keys whose scores are summed together */
  int channels; /* channels of the output that are summed together */
  int keys; /* of a tile, a multiple of rows */
  int heads; /* of a tile: some where their pairs are rotated alike, else 1 */
  bool is_narrow; /* one register of queries where the others have more: of the queries that are left */
  int unroll; /* channels of a score, and keys of the output, in one turn of the innermost loops */
} attention_shape;

/* Tables of pair functions on the grid. A run is a row of the grid, or one of the equal segments of a row that is
 * longer than a tile of keys. */
typedef struct grid_shape {
  int64_t width; /* of the grid's last axis */
  int segments; /* of a row */
  int segment; /* keys of a run; the last segment of a row may have fewer */
  int runs; /* of a tile of keys */
  bool is_shared; /* the tile's registers are neighbours in one row, and share tables */
  int groups; /* tables of a run: 1, or one for each register */
  int vectors; /* registers of a table */
  int blocks; /* whose tables stand at the same time: as many as fit the nearest cache beside queries, keys and scores
               */
  int keys; /* whose scores are summed together over those blocks */
} grid_shape;

/* Whether rows of bfloat16 have functions with dot products beside those with float32. Pairs that are rotated one by
 * one have not: they are float32 where they meet. */
bool attention_has_dots(const attention_plan *p, const cpu_target *target);
attention_shape attention_shape_of(const attention_plan *p, const cpu_target *target);

/* Where rows come rotated, several tiles of queries go through a panel of rotated keys before the next keys are
 * rotated. What a tile remembers between its panels is its state. */
typedef struct turned_shape {
  int tiles;
  int keys; /* of a panel: of a tile */
  int state_numbers; /* float32: queries and output [channels][queries], maximum and sum [queries] */
} turned_shape;

turned_shape turned_shape_of(const attention_plan *p, const attention_shape *s);
/* The shape for gradients, whose tiles remember their queries and what these gain. */
turned_shape turned_gradient_shape_of(const attention_plan *p, const attention_shape *s);
/* Tiles of one head whose queries fill one register at most: what a head's last tile often is. Where registers are
 * wide, a tile of them is worth code of its own; none where pairs are rotated or operands gain, whose code is long:
 * what gradients cost to compile is bounded (tests/effort). */
bool attention_has_narrow(const attention_plan *p, const attention_shape *s);
/* Keys of the smallest block that is asked of whether it is seen (plan/mask): those whose scores are summed together.
 */
int attention_block(const attention_shape *s);
attention_shape attention_narrow_shape(const attention_shape *s);
/* Numbers of a row of `width` channels, rounded up to whole registers of any target. */
int attention_pitch(int width);
