/* gpu/attention_backward: gradients of attention on a GPU.
 *
 * Two entries, launched one after the other. Of the first a thread block has tiles of queries and walks over the keys:
 * it writes what queries gain, a number of each query for the second, and sums what operands of the bias gain. Of the
 * second a block has a tile of keys and walks over the queries of all heads that share it: it writes what keys and
 * values gain. Either makes scores again and weights by the log-sum-exp; nothing is added by two threads. Rows that
 * stay with the block are the rows of the tile (gpu/attention.h), those that pass are its columns.
 *
 * What pairs give operands has a place for each warp of the first entry's blocks, whose sums two small entries add up
 * in order (gpu/finish). What they give positions is a number of each query and head in the first entry, of each key
 * and head in the second; a small entry adds up heads, and batches that share positions. Of a polynomial the first
 * writes what each query's weights gain, and a third entry takes that on to inputs and operands.
 */
#pragma once

#include "base/number.h"
#include "gpu/attention.h"
#include "gpu/give.h"

#include "kernel/launch.h"

/* Appends the entries: NAME_attention_backward_DTYPE, ..._attention_backward_keys_DTYPE, and where operands gain
 * ..._attention_backward_sum and ..._total, where positions do ..._positions; of a polynomial
 * ..._attention_backward_weights_DTYPE, ..._sum, ..._scatter and ..._gather. Nothing where the plan has no gradients
 * here (attend_gradient_fits). */
void gpu_add_attention_gradients(arena *a, gpu_program *program, const attention_plan *p, unsigned dtypes);
void gpu_emit_attention_gradient(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                                 bool host);
/* What stands of them in the head of the PTX file. */
void attend_print_gradients(FILE *out, const gpu_program *program);
/* Whether there is code for it: biases and rotations or neither, rows that fit in shared memory. */
bool attend_gradient_fits(const attention_plan *p);
/* Bits: operands that gain; and those that do of pairs, element by element: of a polynomial they gain of its weights.
 */
unsigned attend_gaining(const attention_plan *p);
unsigned attend_gaining_of_pairs(const attention_plan *p);

/* ---- shared by the files that emit them ---- */

enum { ATTEND_OF_KEYS, ATTEND_OF_VALUES }; /* kinds of rows: of q and k, of g_out and v */
enum { ATTEND_WARPS = PEGEN_PTX_ATTENTION_WARPS };

typedef struct attend_gradient_shape {
  attend_shape tile; /* queries: the rows that stay, of whichever; keys: those that pass; one pitch for all */
  int quads[2];      /* groups of channels of q and k, and of v, that a thread has */
  bool is_shared;    /* rows that pass take turns in one room */
  bool weighs, moves; /* there is room for what weights and coordinates gain of a polynomial: not where it has none */
} attend_gradient_shape;

attend_gradient_shape attend_gradient_shape_of(const attention_plan *p); /* tile.rows 0: none fits */

int64_t attend_columns_bytes(const attention_plan *p, const attend_shape *tile); /* of shared memory, beside scratch */

typedef struct attend_gradient {
  attend t;
  attend_gradient_shape shape;
  const ir_value *parameter; /* those behind forward's: PEGEN_PTX_ATTENTION_G_OUT ... */
  attend_matrix own[2]; /* q and g_out, or k and v */
  attend_matrix passing[2]; /* k and v, or q and g_out */
  ir_value numbers; /* of queries that pass: log-sum-exps, then what is taken off */
  ir_value given; /* shared memory of what threads give (gpu/give.h); null: nothing gains beside rows */
  attend_matrix turned; /* of rows that stay, what they gain of pairs that are rotated; null: none are */
  ir_value turned_words; /* where a team adds it up */
  ir_value scratch; /* shared memory in which columns of queries are made; null: there are none. When they are, places
                     * of a polynomial's pairs stand in it */
  ir_value products; /* shared memory of what a score is a function of, as pairs stand in t.scores; null: of nothing */
  ir_value lane; /* i32: the thread of its warp */
  bool of_keys; /* rows that stay are keys */
  ir_value owner; /* i32: their head */
} attend_gradient;

/* ---- gpu/attention_backward_pairs.c: a tile of pairs ---- */

/* A row's or a column's query: where its keys end, lse in powers of two, D. */
typedef struct attend_query_facts {
  ir_value limit, lse, less;
} attend_query_facts;

/* A tile of pairs: of rows that stay and rows that pass. */
typedef struct attend_pair_tile {
  ir_value first; /* i32: the first row that passes */
  const attend_query_facts *row, *column; /* of the queries, whichever they are; the other is NULL */
  ir_value weight[ATTEND_MOST_PAIRS]; /* P; [rows][columns] */
  ir_value gained[ATTEND_MOST_PAIRS]; /* S' */
} attend_pair_tile;

/* P, from rows of q and k; S', from rows of g_out and v. */
void attend_make_weights(attend_gradient *g, attend_pair_tile *p);
void attend_make_gains(attend_gradient *g, attend_pair_tile *p);
/* Lays what threads have made of their pairs where attend_add_rows reads it: among a warp. */
void attend_lay_numbers(attend_gradient *g, const ir_value *of_pairs);
/* Adds rows that pass, of the kind, times what stands in the tile, where somebody wants (i1) the sums. */
void attend_add_sums(attend_gradient *g, ir_value wanted, int kind, ir_value *sums);

/* ---- gpu/attention_products.c: scores that are functions of the product; nothing where there are none ---- */

void attend_products_begin(attend_gradient *g); /* once where a head is known */
/* p->weight, products, become scores; the products are kept. */
void attend_finish_scores(attend_gradient *g, attend_pair_tile *p);
/* A pair of the tile; first: of the rows that pass; row, column: of the tile; i32. */
attend_pair_of attend_tile_pair(attend_gradient *g, ir_value first, ir_value row, ir_value column);
/* In place of what scores gain, at attend_score_at, what products do. All threads of a warp. */
void attend_lay_product_gains(attend_gradient *g, ir_value first);

/* ---- gpu/attention_turned.c: what rows gain of pairs that are rotated ---- */

int64_t attend_turned_word_bytes(const attention_plan *p); /* of a block of threads */
int64_t attend_turned_bytes(const attention_plan *p, const attend_shape *tile); /* of shared memory */
/* Nothing where no pairs are rotated. All threads of a warp. */
void attend_turned_clear(attend_gradient *g); /* before the first tile of rows that pass */
/* Of the tile from `first` on, whose rows of q or k stand in shared memory, its gains of scores at attend_score_at. */
void attend_turned_add(attend_gradient *g, ir_value wanted, ir_value first);
void attend_turned_merge(attend_gradient *g, ir_value *sums); /* adds them */

/* ---- gpu/attention_turned_rows.c: rows that are turned once each; nothing where they are not ---- */

/* Of gradients: rows are turned where values are, pairs otherwise, whose torques are what a rotation gains. */
const attention_plan *attend_gradient_plan(arena *a, const attention_plan *p);
/* The rows that stay, of both kinds; after a barrier of its own, before another. Those of a kind that pass, between two
 * barriers; watched: numbers that are not finite are told. */
void attend_own_turn(attend_gradient *g);
void attend_passing_turn(attend_gradient *g, int kind, bool watched);
/* Sums of a kind that rows that stay gained, in their memory, which is free behind it. */
void attend_sums_turn_back(attend_gradient *g, int kind, ir_value *sums);

/* ---- gpu/attention_gives.c: what operands, coordinates and inputs gain ---- */

attend_give attend_give_of(attend_gradient *g, ir_value first); /* first: of the rows that pass, i32 */
int64_t attend_gives_bytes(const attend_gradient_shape *s, const attention_plan *p); /* of shared memory */
bool attend_gives_places(const attend_gradient_shape *s, const attention_plan *p);
ir_value attend_gives_wanted(attend_gradient *g); /* i1: anything of queries */
/* Which of a token's sums the elements of its inputs' rows gain, in a plan whose inputs gain. */
const gpu_input_sums *attend_input_sums_of(arena *a, const attention_plan *p);
/* Zeros: the warp's sums of elements, once a block; what the rows that stay gain, before their first tile. */
void attend_gives_clear_block(attend_gradient *g);
void attend_gives_clear(attend_gradient *g);
void attend_gives_begin(attend_gradient *g); /* once where a head is known */
/* Of the tile of rows that pass from `first` on, whose gains of scores stand at attend_score_at. All threads of a warp.
 */
void attend_gives_add(attend_gradient *g, ir_value first);
void attend_gives_end(attend_gradient *g); /* of a tile of queries */

/* ---- gpu/attention_weights.c: from weights to inputs and operands ---- */

bool attend_weights_fit(const attention_plan *p);
void attend_add_weight_entries(arena *a, gpu_program *program, const attention_plan *p, unsigned dtypes);
void gpu_emit_attention_weights(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                                bool host);
