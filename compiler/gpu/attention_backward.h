/* gpu/attention_backward: gradients of attention on a GPU.
 *
 * Two entries, launched one after the other. Of the first a thread block has tiles of queries and walks over the keys:
 * it writes what queries gain, a number of each query for the second, and sums what operands of the bias gain. Of the
 * second a block has a tile of keys and walks over the queries of all heads that share it: it writes what keys and
 * values gain. Either makes scores again and weights by the log-sum-exp; nothing is added by two threads. Rows that
 * stay with the block are the rows of the tile (gpu/attention.h), those that pass are its columns.
 *
 * What pairs give operands has a place for each warp of the first entry's blocks, whose sums two small entries add up
 * in order (gpu/finish).
 */
#ifndef PEGEN_GPU_ATTENTION_BACKWARD_H
#define PEGEN_GPU_ATTENTION_BACKWARD_H

#include "base/number.h"
#include "gpu/attention.h"

#include "kernel/launch.h"

/* Appends the entries: NAME_attention_backward_DTYPE, ..._attention_backward_keys_DTYPE, and where operands gain
 * ..._attention_backward_sum and ..._total. Nothing where the plan has no gradients here (attend_gradient_fits). */
void gpu_add_attention_gradients(arena *a, gpu_program *program, const attention_plan *p, unsigned dtypes);
void gpu_emit_attention_gradient(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                                 bool host);
/* What stands of them in the head of the PTX file. */
void attend_print_gradients(FILE *out, const gpu_program *program);
/* Whether there is code for it: a bias or none, rows that fit in shared memory. */
bool attend_gradient_fits(const attention_plan *p);
/* Bits: operands that gain. */
unsigned attend_gaining(const attention_plan *p);

/* ---- shared by the files that emit them ---- */

enum { ATTEND_OF_KEYS, ATTEND_OF_VALUES }; /* kinds of rows: of q and k, of g_out and v */
/* Most sums that a thread keeps of operands that stand by themselves. */
enum { ATTEND_MOST_GAINS = 16, ATTEND_WARPS = PEGEN_PTX_ATTENTION_WARPS };

typedef struct attend_gradient_shape {
  attend_shape tile; /* queries: the rows that stay, of whichever; keys: those that pass; one pitch for all */
  int quads[2];      /* groups of channels of q and k, and of v, that a thread has */
  bool is_shared;    /* rows that pass take turns in one room */
} attend_gradient_shape;

attend_gradient_shape attend_gradient_shape_of(const attention_plan *p); /* tile.rows 0: none fits */

typedef struct attend_gradient {
  attend t;
  attend_gradient_shape shape;
  const ir_value *parameter; /* those behind forward's: PEGEN_PTX_ATTENTION_G_OUT ... */
  attend_matrix own[2];      /* q and g_out, or k and v */
  attend_matrix passing[2];  /* k and v, or q and g_out */
  ir_value numbers;          /* of queries that pass: log-sum-exps, then what is taken off */
  ir_value gains;            /* shared memory of a warp's gains and their places; null: no place is computed */
  ir_value lane;             /* i32: the thread of its warp */
  ir_value chunk;            /* i64: address of the warp's sums of elements; 0: not wanted */
} attend_gradient;

/* ---- gpu/attention_backward_pairs.c: a tile of pairs ---- */

/* A row's or a column's query: where its keys end, lse in powers of two, D. */
typedef struct attend_query_facts {
  ir_value limit, lse, less;
} attend_query_facts;

/* A tile of pairs: of rows that stay and rows that pass. */
typedef struct attend_pair_tile {
  ir_value first;                          /* i32: the first row that passes */
  const attend_query_facts *row, *column;         /* of the queries, whichever they are; the other is NULL */
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

/* ---- gpu/attention_gains.c: what operands of a bias gain ---- */

/* Sums of a tile's pairs that go from tile to tile: two numbers a scatter that stands by itself. */
int attend_gain_values(const attention_plan *p);
void attend_gains_clear(attend_gradient *g);                 /* the warp's sums of elements, before the first item */
void attend_gains_begin(attend_gradient *g, ir_value *sums); /* of an item; loads what gradients are made of */
/* Of the tile of keys from `first` on, whose gains of scores stand at attend_score_at. All threads of a warp. */
void attend_gains_add(attend_gradient *g, ir_value first, ir_value *sums);
void attend_gains_end(attend_gradient *g, const ir_value *sums); /* after a barrier; to elements */
int64_t attend_gains_bytes(const attention_plan *p, const attend_shape *tile); /* of shared memory */

#endif
