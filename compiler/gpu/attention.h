/* gpu/attention: attention on a GPU: a thread block has a tile of queries of one head.
 *
 * Keys and values go through shared memory as float32, a tile at a time; the softmax is online, as on processors
 * (plan/attention.h). 8 neighbouring threads have `rows` queries: of a tile of keys each of them computes the scores of
 * every eighth key, and of the output every eighth group of 4 channels, so that scores change hands within a warp only,
 * and a row's maximum and the output's decay are the thread's own. What a pair adds (bias, rotation) is computed for
 * each pair from the displacement: no table is made, no grid is needed. A bias that is a polynomial is a few more
 * channels of queries and keys in shared memory instead.
 */
#ifndef PEGEN_GPU_ATTENTION_H
#define PEGEN_GPU_ATTENTION_H

#include "gpu/body.h"
#include "gpu/weights.h"
#include "plan/attention.h"

/* NULL after a diag_error where rows are too large for shared memory. */
const gpu_program *gpu_attention_program(arena *a, const attention_plan *p, unsigned dtypes);

/* ---- shared by the files that emit it ---- */

enum { ATTEND_LANES = 8, ATTEND_QUAD = 4 };

typedef struct attend_shape {
  int rows, columns;                       /* queries and keys of a thread */
  int queries, keys;                       /* of a tile */
  int query_pitch, key_pitch, score_pitch; /* float32 from row to row in shared memory */
  int quads;                               /* groups of 4 channels of the output that a thread has */
  int columns_at, width; /* in a row of queries or keys a polynomial's columns stand from the first up to the second:
                          * multiples of 4, equal where there are none */
  int token_lanes; /* that make a query's columns together */
  int64_t scratch; /* bytes in which they do, where later keys and scores are */
} attend_shape;

/* What the entries of one description are emitted from. */
typedef struct attend_design {
  const attention_plan *p;
  attend_shape shape;
} attend_design;

typedef struct attend {
  ir *b;
  arena *memory;
  const attention_plan *p;
  const gpu_entry *entry;
  attend_shape shape;
  const ir_value *parameter; /* i64 */
  ir_value block, thread; /* i32 */
  ir_value team, lane; /* i32: the thread's 8 among the block's, and it among them */
  ir_value batch, head; /* i32 */
  ir_value first, tokens, keys; /* i32: first query of the tile; all queries and keys */
  ir_value queries, rows, scores, query_places, places; /* shared memory; rows: of keys, then of values */
  ir_value spoilt; /* shared, an i32: not 0: some value was not finite */
  thread_emitter exprs;
  row_thread numbers; /* the way from a tensor's numbers to float32 and back */
  weight_lanes weights; /* of a polynomial: the thread as one of a query's lanes, */
  ir_value origin; /* and shared memory with the place that coordinates count from */
} attend;

/* A head's rows of a tensor: i64. */
typedef struct attend_rows {
  ir_value base, stride;
  int width;
} attend_rows;

/* ---- gpu/tile.c: rows in shared memory ---- */

attend_shape attend_shape_of(arena *a, const attention_plan *p); /* rows 0: none fits */
bool attend_has_columns(const attention_plan *p);
/* Whether something is computed of each pair's displacement: a bias that is no polynomial, a rotation. */
bool attend_has_pairs(const attention_plan *p);
void attend_declare_memory(attend *t);
ir_value attend_row_at(attend *t, ir_value memory, ir_value row, int pitch);

/* parameter: PEGEN_PTX_ATTENTION_Q or the like. */
attend_rows attend_rows_of(attend *t, int parameter, ir_value head, int width);
/* Rows first, first + 1, ... `count` of them, times `factor` (f32; null: 1) as float32 in shared memory; from row `end`
 * on the last one again. All threads of the block. watched: numbers that are not finite are told to t->spoilt. */
void attend_copy(attend *t, const attend_rows *from, ir_value first, ir_value end, int count, ir_value to, int pitch,
                 ir_value factor, bool watched);
/* The same for a tile of keys or values in two steps, the first of which only begins to load; how many values it gives.
 */
int attend_ahead(const attend *t, int width);
void attend_load(attend *t, const attend_rows *from, ir_value first, ir_value end, ir_value *ahead);
void attend_store(attend *t, const attend_rows *from, ir_value first, ir_value end, const ir_value *ahead,
                  bool watched);
/* The token, or where it has no coordinates that mean anything (before the first with one, from `end` on) another that
 * exists. */
ir_value attend_placed_token(attend *t, ir_value token, ir_value end);
/* A coordinate of place `index` (i32) of those in shared memory. */
two_float attend_coordinate(attend *t, ir_value places, ir_value index, int axis);
void attend_store_coordinate(attend *t, ir_value places, ir_value index, int axis, two_float x);
/* Coordinates of `count` tokens from `first` on, less `origin` (NULL: nothing). */
void attend_copy_places(attend *t, int parameter, ir_value first, ir_value end, int count, ir_value to,
                        const two_float *origin);
/* Channels [4 lane + 32 quad, ... + 4) of query `token` of the output. */
void attend_store_quad(attend *t, const attend_rows *to, ir_value token, int quad, ir_value values);

/* ---- gpu/pairwise.c: what a pair adds ---- */

/* Whether it is little enough to be written out for every pair of a thread. */
bool attend_pair_is_short(const attention_plan *p);
/* What does not differ from pair to pair; once, where it dominates all pairs. */
void attend_pair_begin(attend *t);
/* query, key: of the tile; tokens: of the sequence; i32. */
ir_value attend_pair(attend *t, ir_value query, ir_value query_token, ir_value key, ir_value key_token);
/* i1: neither of the two is a prefix token; null: there are none. */
ir_value attend_encoded(attend *t, ir_value query_token, ir_value key_token);
/* Runs of channels that no rotation turns. */
int attend_next_plain(const attention_plan *p, int from, int *end);

/* ---- gpu/polynomial.c: a bias that is a polynomial, as columns of the queries and keys of a tile ---- */

/* The columns of all queries, times the scale (f32). Once, before keys are stored; all threads of the block, which meet
 * at the end. */
void attend_query_columns(attend *t, ir_value scale);
/* Those of the tile of keys from `first` on. */
void attend_key_columns(attend *t, ir_value first);

#endif
