/* gpu/attention: attention on a GPU, by tile programs (gpu/mma.h): what their emitters share.
 *
 * What a pair adds (bias, rotation) is computed for each pair from the displacement: no table is made, no grid is
 * needed. A bias that is a polynomial is a few more columns of rows in shared memory instead.
 */
#pragma once

#include "gpu/body.h"
#include "gpu/vendor.h"
#include "gpu/weights.h"
#include "plan/attention.h"

/* NULL after a diag_error where rows are too large for shared memory. gradients: also the entries of gradients, where
 * there is code for them (gpu/attention_backward.h). */
const gpu_program *gpu_attention_program(arena *a, const gpu_target *chip, const attention_plan *p, unsigned dtypes,
                                         bool gradients);

/* ---- shared by the files that emit it ---- */

enum { ATTEND_QUAD = 4 /* channels of an access */ };

typedef struct attend_shape {
  int queries; /* of a tile, or keys where those are the block's own */
  int width; /* of a polynomial's columns: a multiple of 4 */
  int token_lanes; /* that make a query's columns together */
} attend_shape;

/* What the entries of one description are emitted from. */
typedef struct attend_design {
  const attention_plan *p;
  const attention_plan *products; /* of tile programs, for which rows are turned by an entry of its own */
  const struct mma_plan *mma[2][7]; /* [mma_rows][mma_kind] of gpu/mma.h; NULL: there is none */
} attend_design;

typedef struct attend {
  ir *b;
  arena *memory;
  const attention_plan *p;
  const gpu_entry *entry;
  attend_shape shape;
  const ir_value *parameter; /* i64 */
  ir_value block, thread; /* i32 */
  ir_value batch, head; /* i32 */
  ir_value first, tokens, keys; /* i32: first query of the tile; all queries and keys */
  ir_value query_places, places; /* shared memory: coordinates of queries and keys */
  ir_value query_numbers, key_numbers; /* shared memory of what scores read of inputs; null: nothing */
  ir_value far; /* shared, an i32: not 0: some token's coordinates are not one float32 near enough; null: not asked */
  bool is_near; /* none is where code is emitted now: a displacement is one difference */
  ir_value spoilt; /* shared, an i32: not 0: some value was not finite */
  thread_emitter exprs;
  row_thread numbers; /* the way from a tensor's numbers to float32 and back */
  weight_lanes weights; /* of a polynomial: the thread as one of a query's lanes, */
  ir_value origin; /* and shared memory with the place that coordinates count from, [axes] i64, */
  ir_value constants; /* and with what columns leave out of scores; null: nothing is */
  ir_value kept; /* i64: address of weights of queries that its entry writes (PEGEN_PTX_ATTENTION_KEPT); 0: none; null:
                  * it is another's */
} attend;

/* A head's rows of a tensor: i64. */
typedef struct attend_rows {
  ir_value base, stride;
  int width;
} attend_rows;

/* ---- gpu/lse.c: the log-sum-exp of queries ---- */

int attend_parameters(const spec *s); /* of an entry */
ir_value attend_lse_is_wanted(attend *t);
/* ln 2 maximum + ln sum of query `query` of the tile, by the thread that has one (i1). */
void attend_store_lse(attend *t, ir_value has, ir_value query, ir_value maximum, ir_value sum);
/* What is known of query `token` of the head. Its lse is in powers of two, and infinity where it saw nothing, so that
 * its weights are 0. The gradient of lse that comes in is 0 where there is none. The last one is the address of D.
 * gradient: parameters from PEGEN_PTX_ATTENTION_G_OUT on. */
ir_value attend_load_lse(attend *t, ir_value token);
ir_value attend_load_g_lse(attend *t, const ir_value *gradient, ir_value token);
ir_value attend_delta_at(attend *t, const ir_value *gradient, ir_value token);

/* ---- gpu/tile.c: rows in shared memory ---- */

bool attend_has_columns(const attention_plan *p);
/* Whether columns leave something out of scores that is the same of all keys, and where it is kept of a query: f32. */
bool attend_has_constant(const attention_plan *p);
ir_value attend_constant_at(attend *t, ir_value query);
/* Whether something is computed of each pair: a bias that is no polynomial, a rotation, a score; of its displacement.
 */
bool attend_has_pairs(const attention_plan *p);
bool attend_has_places(const attention_plan *p);
ir_value attend_row_at(attend *t, ir_value memory, ir_value row, int pitch);

/* parameter: PEGEN_PTX_ATTENTION_Q or the like. */
attend_rows attend_rows_of(attend *t, int parameter, ir_value head, int width);
/* Where expressions and numbers come from, in every entry. */
void attend_set_emitters(attend *t, unsigned native);
/* No number that is not finite has been seen. By one thread: a barrier is still to come. */
void attend_clear_spoilt(attend *t);
/* The first query (i32) that is no prefix token, below 0 where keys are more than queries; where there are such tokens.
 */
ir_value attend_first_query(attend *t);
/* The token, or where it has no coordinates that mean anything (a prefix token, one behind the last) another that
 * exists. parameter: PEGEN_PTX_ATTENTION_POSITIONS, or those of keys. */
ir_value attend_placed_token(attend *t, int parameter, ir_value token);
/* Bytes of a token's coordinates in shared memory. */
int64_t attend_place_bytes(const attention_plan *p);
/* The displacement of two tokens of the tile, the key's coordinate less the query's, before it is rounded; and as the
 * nearest float32 or its neighbour, at five additions. */
two_float attend_displacement(attend *t, ir_value query, ir_value key, int axis);
/* The first within 2^-48 of the coordinates, a third as dear. */
two_float attend_loose_displacement(attend *t, ir_value query, ir_value key, int axis);
ir_value attend_narrow_displacement(attend *t, ir_value query, ir_value key, int axis);
/* Coordinates of `count` tokens from `first` on, less the origin. */
void attend_copy_places(attend *t, int parameter, ir_value first, int count, ir_value to, const ir_value *origin);
/* What goes off every coordinate, [axes] i64: the place of the token in the middle of the block's own tile, or of
 * another of its tokens that has a finite one. `count` tokens from `first` on. */
void attend_find_origin(attend *t, int parameter, ir_value first, int count, ir_value *origin);

/* ---- gpu/tile_sums.c: which tile a block has, and which keys its queries see ---- */

ir_value attend_short_parameter(attend *t, int index); /* i32 */
ir_value attend_scale(attend *t); /* f32, times log2(e) */
/* Tile `item` (i32) of those of shape.queries rows that all heads' `rows` (i32) are cut into, a head's side by side:
 * t->first and t->batch; gives the head. last_first: a head's last tile comes first. */
ir_value attend_set_tile(attend *t, ir_value item, ir_value rows, ir_value heads, bool last_first);
/* The score with what the pair adds; a bias that hides the key hides its score, too, should that be no number. */
ir_value attend_paired(attend *t, ir_value score, ir_value pair);
/* A query sees keys below this: all, or those of its own time. */
ir_value attend_limit_of(attend *t, ir_value query_token);
/* Keys that some query of the tile sees: [0, end). */
ir_value attend_end_of_keys(attend *t);

/* ---- gpu/attention_rows.c: rows that are turned once each, where rotations factorise ---- */

/* Whether heads of q that share one of k rotate its rows differently, which are rotated ahead once for all of them. */
bool attend_turns_by_head(const attention_plan *p);
/* The plan of rows that come turned, of whose pairs no place is asked where the rotation alone did. */
const attention_plan *attend_plan_of_products(arena *a, const attention_plan *p);

/* ---- gpu/pairwise.c: what a pair adds ---- */

/* What does not differ from pair to pair; once, where it dominates all pairs. */
void attend_pair_begin(attend *t);
/* Positions of the expressions to come: the displacement of two tokens of the tile, as float32. */
void attend_pair_place(attend *t, ir_value query, ir_value key);
/* A query and a key, of the tile and of the sequence: i32. */
typedef struct attend_pair_of {
  ir_value query, query_token, key, key_token;
} attend_pair_of;

/* Its bias alone. */
ir_value attend_bias(attend *t, const attend_pair_of *pair);
/* The score that a product becomes. */
ir_value attend_score(attend *t, ir_value product, const attend_pair_of *pair);
/* i1: neither of the two is a prefix token; null: there are none. */
ir_value attend_encoded(attend *t, ir_value query_token, ir_value key_token);
/* Visits the blocks of a pair's rotation, one after the other in a loop, with the entries of the emitter's unit. What a
 * visit returns goes on to the next block, from 0 on, and is returned at the end. */
typedef ir_value attend_visit_block(void *context, attend *t, const ir_value *entry, ir_value sum);
ir_value attend_walk_blocks(attend *t, ir_value query, ir_value key, attend_visit_block *visit, void *context);
/* A number of `bytes`: float32, or in the rows' type of 16 bits. */
ir_value attend_load_number(attend *t, ir_value at, int bytes);
/* The block's channels of a row of such numbers; R x, or R^T x. */
void attend_block_of_row(attend *t, ir_value row, int bytes, ir_value *x);
void attend_turn_block(attend *t, const ir_value *entry, bool back, const ir_value *x, ir_value *turned);
/* What turning changes, R x - x or R^T x - x: 0 where the pair is not encoded. */
void attend_change_block(attend *t, const ir_value *entry, bool back, ir_value encoded, const ir_value *x,
                         ir_value *changed);
/* sum + q . (R k - k) of a block. */
ir_value attend_add_change(attend *t, const ir_value *entry, ir_value encoded, const ir_value *q, const ir_value *k,
                           ir_value sum);

/* ---- gpu/attention_numbers.c: what scores read of tokens beside their coordinates; nothing where they do not ---- */

int64_t attend_number_bytes(const attention_plan *p, bool of_keys, int tokens); /* of shared memory */
/* Lays the numbers of `count` queries or keys from `first` on, of the head at hand, in shared memory; before a barrier
 * of the block. */
void attend_lay_numbers_of(attend *t, bool of_keys, ir_value first, int count);
/* Number i of an existing query or key, as it is read there: float32. */
ir_value attend_number_of(attend *t, int i, ir_value token);
/* Number i of key `key` of the tile, which the laid numbers hold. */
ir_value attend_key_number(attend *t, int i, ir_value key);
int attend_pair_rows(const attention_plan *p); /* inputs of pairs */
/* Positions of the expressions to come that are numbers: a pair's. */
void attend_pair_numbers(attend *t, const attend_pair_of *pair);

/* ---- gpu/polynomial.c: a bias that is a polynomial, as columns of the queries and keys of a tile ---- */

/* Rows in shared memory that end in columns: of `count` tokens from `first` (i32) on. */
typedef struct attend_column_rows {
  ir_value memory;
  int pitch;
  ir_value first;
  int count;
} attend_column_rows;

/* What coordinates count from lies in t->origin: the place of the token in the middle of `count` from `first` on, or of
 * another of them that has a finite one. All threads of the block come here and meet. parameter:
 * PEGEN_PTX_ATTENTION_POSITIONS, or those of keys. */
void attend_lay_origin(attend *t, int parameter, ir_value first, int count);
/* The columns of queries, times the scale (f32), made in `scratch`. All threads of the block, which meet at the end. */
void attend_query_columns(attend *t, const attend_column_rows *rows, ir_value scratch, ir_value scale);
/* The columns of one key by its coordinates: [n_columns]. */
void attend_columns_of_place(attend *t, const ir_value *place, ir_value *column);
ir_value attend_natural_scale(attend *t); /* f32: attend_scale without its log2(e) */
/* Byte of the first weight of a query of the head (i32) among those of [batches][heads][queries]; i64. */
ir_value attend_weight_byte(attend *t, ir_value token);
