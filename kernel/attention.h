/* attention.h: the border between the driver of attention and the code that the compiler emits for it.
 *
 * The driver cuts the work into tiles of queries of one head; an emitted function goes through the keys
 * of one tile, a tile of keys at a time, with the queries in the lanes. Only int64_t, int32_t
 * arrays of even length, double and pointers, as in loop.h.
 */
#pragma once

#include "loop.h"

/* Most queries of a tile, on any target; most float32 lanes of a register. */
enum { PEGEN_ATTENTION_QUERIES = PEGEN_WEIGHT_QUERIES };

/* Most heads of a tile. */
enum { PEGEN_ATTENTION_HEADS = 4 };

/* Most tiles of queries that go through the keys together where rows are turned, and tokens whose rotors are built
 * before their rows are turned. */
enum { PEGEN_ATTENTION_TURNED_TILES = 8, PEGEN_ATTENTION_TURNED_ROTORS = 16, PEGEN_ATTENTION_TURNED_KEYS = 72 };

/* Consecutive keys [begin, end) that are computed one behind the other. All queries see the keys
 * [whole_begin, whole_end), except where `causal` hides them. */
typedef struct pegen_attention_run {
  int64_t begin, end;
  int64_t whole_begin, whole_end;
} pegen_attention_run;

enum { PEGEN_ATTENTION_MIXED, PEGEN_ATTENTION_UNSEEN, PEGEN_ATTENTION_WHOLE };

/* Blocks of keys behind the prefix, and what is known of them (attention_seen.c). */
typedef struct pegen_attention_seen {
  int64_t keys, blocks; /* of a block, a multiple of the code's `block`; how many there are */
  int64_t pitch;        /* numbers of a row below: blocks, rounded up to the lanes of any register */
  float *bounds; /* [axis][2][pitch]: the least and the greatest coordinate, from the origin; NaN: some are no numbers,
                    or too large */
  int32_t *states; /* [pitch], of a tile of queries, which attend writes: PEGEN_ATTENTION_MIXED, ... */
  pegen_attention_run *runs; /* [(blocks + 1) / 2] of keys that are not unseen, which pegen_attention_runs writes */
  int64_t n_runs;
  double *wide; /* bounds of positions, not from the tile's origin; NULL: all tiles have one */
} pegen_attention_seen;

/* What a number is: the token's index in the sequence of keys, or of an input an element of the token's row, or where
 * the row is, in bytes from places.data: one whose elements are read at computed places, or one of the token's pairs,
 * of which the key's number is one. */
enum { PEGEN_READS_INDEX, PEGEN_READS_ELEMENT, PEGEN_READS_ROW, PEGEN_READS_PAIR };

/* A number of keys, or of queries, that is a coordinate behind those of positions, 0 of the others: a displacement is
 * a key's number, or a query's with the other sign. */
typedef struct pegen_attention_number {
  int64_t kind, of_key; /* PEGEN_READS_INDEX, ...; 1: of keys */
  int64_t input, element; /* -1: of none; of a row of it */
} pegen_attention_number;

/* Where rows of keys and values are in pages: those of a tile's head are in page 0, key 0 in its first row, as
 * addresses count. */
typedef struct pegen_attention_pages {
  const int32_t *table; /* [pages of the sequence] in its order */
  int64_t size; /* keys of a page, a multiple of 16 */
  int64_t k_page, v_page; /* strides in bytes */
  int64_t input_page[PEGEN_MAX_INPUTS]; /* the same of inputs of keys */
} pegen_attention_pages;

struct pegen_attention_turner;

/* One tile: queries of one head against its keys; or, where pairs of all heads are rotated alike, of some heads. */
typedef struct pegen_attention_tile {
  int64_t heads; /* 1 to those of pegen_attention_code */
  const char *q[PEGEN_ATTENTION_HEADS], *k[PEGEN_ATTENTION_HEADS], *v[PEGEN_ATTENTION_HEADS]; /* token 0 of each */
  char *out[PEGEN_ATTENTION_HEADS];
  char *lse[PEGEN_ATTENTION_HEADS]; /* token 0 of each, float32; NULL: not wanted */
  int64_t q_token, k_token, v_token, out_token, lse_token; /* strides in bytes */
  int64_t stage; /* 1: rows of keys and values are copied before they are used: their stride is unkind to caches */
  int64_t plain; /* keys [0, plain) have neither bias nor rotation: prefix tokens, or all where the queries are such */
  int64_t end; /* keys [0, end) are looked at; above 0 */
  int64_t free; /* keys below it are seen by every query of the tile; 0: masks must be looked at (a head with *spoilt,
                   and a bias that hides) */
  int64_t limit; /* keys below it are seen by every query of the tile but for the bias */
  pegen_attention_seen *seen; /* of a form that skips; else NULL */
  float reach[PEGEN_MAX_ROTOR_AXES][2]; /* the same of the tile's queries as of a block of keys */
  int64_t n_keys; /* of the head */
  int64_t *spoilt; /* 1: some key or value of the heads is not finite, so that what is not seen must be left out */
  int64_t *lost; /* becomes 1 where some output is not finite; NULL: nobody asks */
  double scale; /* of q k^T: the caller's factor times log2(e) */
  const double *leaves; /* of the head: [leaf][block] */
  const char *prepared; /* of the head: what `prepare` made of the leaves of a polynomial */
  const char *input[PEGEN_MAX_INPUTS]; /* of the head: token 0 of each input */
  int64_t input_token[PEGEN_MAX_INPUTS]; /* strides in bytes */
  /* Biases of pairs, [key][queries] from key 0 on, in powers of two, are kept where some batches have the same pairs
   * (pegen_attention.keeps_biases). Tiles of these batches follow each other, and the first writes; NULL: nothing is
   * kept beyond this tile. */
  float *biases;
  int64_t is_first;
  float *weights; /* [weight][PEGEN_ATTENTION_QUERIES] of the queries: weigh writes, attend reads; 0 of empty lanes */
  const struct pegen_attention_turner *turner; /* of gradients whose values are turned */
  const void *const *operands; /* data of the operands that are read by index, by operand: float32 */
  const struct pegen_attention_places *keys, *places; /* places: of the queries */
  int64_t queries; /* lanes from this one on are empty */
  int64_t tokens[PEGEN_ATTENTION_QUERIES]; /* of each lane; -1: the lane is empty */
  int32_t limits[PEGEN_ATTENTION_QUERIES]; /* a query sees keys below it */
  /* The next fields, up to `state`, serve rows that come rotated, as float32 or, for attend_dots, bfloat16. There k and
   * k_token are those of a panel, and keys [begin, end) are computed. */
  int64_t stages; /* pegen_attention_stage bits */
  int64_t begin;
  int64_t vector; /* for PEGEN_STAGE_QUERIES: a register of its queries, whose rows are */
  const float *rows; /* [lanes][head_dim] */
  float *state; /* pegen_attention_turned.state_numbers */
  const pegen_attention_pages *pages; /* of k and v; NULL: their rows follow each other. Then `stage` is 1 */
  /* Coordinates of the queries, counted from the origin of keys. They are the last field: gradients copy tiles, and of
   * this array only the rows in use. */
  double positions[PEGEN_MAX_ROTOR_AXES][PEGEN_ATTENTION_QUERIES];
} pegen_attention_tile;

/* What a call of an emitted function does for a tile beside its keys: an empty sum, its queries' rows into the state,
 * out and lse from it. */
typedef enum pegen_attention_stage {
  PEGEN_STAGE_EMPTY = 1,
  PEGEN_STAGE_QUERIES = 2,
  PEGEN_STAGE_OUT = 4
} pegen_attention_stage;

/* Coordinates that keys of a batch have on an axis, less the origin, where they are few and float32 holds them; and
 * which of them each key has. count: 0 where they are not looked for, or are none such. */
enum { PEGEN_STRIP_PLACES = 64, PEGEN_STRIP_KEYS = 8192 };
typedef struct pegen_attention_strip {
  int64_t count;
  float *places; /* [PEGEN_STRIP_PLACES] */
  uint8_t *of_key; /* [keys] */
} pegen_attention_strip;

/* Where tokens are: positions of a tensor, or the built-in grid's. */
typedef struct pegen_attention_places {
  const char *positions; /* of token 0; NULL: the grid's */
  int64_t type; /* pegen_position_type */
  int64_t token, axis; /* strides in bytes */
  int64_t axes, skip;
  int64_t n_numbers; /* coordinates behind them, which the origin leaves alone */
  const pegen_attention_number *numbers;
  int64_t of_keys; /* 1: places of keys */
  int64_t ahead; /* index of token 0 in the sequence of keys */
  const char *input[PEGEN_MAX_INPUTS]; /* rows of token 0 of the head; those that numbers are read of */
  int64_t input_token[PEGEN_MAX_INPUTS]; /* strides in bytes */
  const char *data[PEGEN_MAX_INPUTS]; /* the first row of the same tensors */
  int64_t number[PEGEN_MAX_INPUTS]; /* PEGEN_NUMBER_ of the same: numbers of pairs may have 16 bits */
  const int64_t *grid;
  double origin[PEGEN_MAX_ROTOR_AXES]; /* taken off every coordinate, so that most differences are exact in float32 */
  const pegen_attention_pages *pages; /* of keys whose inputs are in pages, as k is; NULL: rows follow each other */
  pegen_attention_strip strips[PEGEN_MAX_ROTOR_AXES]; /* of keys */
} pegen_attention_places;

typedef void pegen_attend_function(const pegen_attention_tile *tile);
/* `count` rows of a number type, `token` bytes apart, as float32. */
typedef void pegen_attention_read_function(const char *from, int64_t token, int64_t count, float *to);

/* A row of float32 as one of a number type. */
typedef void pegen_attention_write_function(const float *from, char *to);

/* `count` rows of head_dim float32, one behind the other, become bfloat16 where they are. */
typedef void pegen_attention_narrow_function(float *rows, int64_t count);

/* The emitted functions of one target. */
typedef struct pegen_attention_code {
  int64_t lanes, vectors; /* queries of a tile: vectors * lanes */
  int64_t heads; /* most heads of a tile */
  int64_t by_rows; /* 1: a register of queries are neighbours in one row of the grid */
  int64_t asks; /* 1: attend asks for rows of the next tile's queries and outputs */
  int64_t block; /* keys: whole groups of those whose scores are summed together, so that wherever a run of keys begins,
                    a key is in the same group */
  pegen_attend_function *attend[PEGEN_ROW_TYPES]; /* by PEGEN_NUMBER_; NULL: not compiled in */
  pegen_attend_function *attend_dots; /* of bfloat16 by dot products; NULL: none */
  pegen_attend_function *look[PEGEN_ROW_TYPES]; /* the same: sets *spoilt */
  /* A bias that is a polynomial has functions that compute weights of the tile's queries, one for each number type of
   * inputs. They are NULL for any other bias. */
  pegen_prepare_function *prepare; /* NULL: nothing to prepare */
  pegen_attend_function *weigh[PEGEN_ROW_TYPES];
  pegen_attention_read_function *read[PEGEN_ROW_TYPES]; /* rows of q and k, where they come in panels; else NULL */
  pegen_attention_write_function *write[PEGEN_ROW_TYPES]; /* a row of out, where values come turned; else NULL */
  pegen_attention_narrow_function *narrow; /* rows that come turned, for attend_dots; NULL: none do */
} pegen_attention_code;

/* Rotations that leave the pairs: rows of q and k are turned at their own positions, each key once for some tiles. */
typedef struct pegen_attention_turned {
  int64_t tiles; /* of queries that go through the keys together: at most PEGEN_ATTENTION_TURNED_TILES */
  int64_t keys; /* of a panel */
  int64_t state_numbers; /* float32 of a tile, a multiple of a register's lanes */
  int64_t values; /* 1: rows of v, too, and outputs back: v and out of a tile are float32 */
  const pegen_blades *rows; /* whose encode functions of float32 turn them */
} pegen_attention_turned;

/* ---- gradients ---- */

/* A tile of queries of one head, as forward has it, against keys [begin, tile.end): tile.out and tile.lse are what
 * forward wrote. What is NULL is not wanted. */
typedef struct pegen_attention_gradient_tile {
  pegen_attention_tile tile; /* first */
  int64_t begin;
  const char *g_out, *g_lse; /* token 0: gradients coming in; g_lse float32 */
  int64_t g_out_token, g_lse_token; /* strides in bytes */
  char *g_q; /* token 0: going out; a row is written for each of the tile's queries */
  int64_t g_q_token;
  /* Sums from key 0 on, to which gradients of keys [key][head_dim] and of values [key][value_dim] are added. Their rows
   * are rounded up to PEGEN_ATTENTION_PITCH numbers. Gradients of keys lack the factor of q k^T. */
  float *key_sums, *value_sums;
  const char *const *ahead; /* [n_ahead]: rows of so many lines of a cache that are read after this tile */
  int64_t n_ahead, ahead_lines;
  double *operand_sums; /* [n_scatters][n_blocks] of the head, added to; NULL: no operand's gradient is wanted */
  double *const *tables; /* [n_operands]: of those that are read by index, elements of the chunk, added to */
  float *weight_gains; /* [weight][PEGEN_ATTENTION_QUERIES]: what weights of the queries gain; NULL: not wanted */
  /* What elements of inputs' rows gain that are read at computed places, added to: rows of the tile's queries, and
   * [key][elements] from key 0 on. NULL: not wanted. */
  double *const *row_gains; /* [PEGEN_ATTENTION_QUERIES]: a lane without a query has the first one's, and gives 0 */
  double *key_row_gains;
  double *place_sums; /* [token][axes] of the head: what the queries' coordinates gain, written */
  double *key_place_sums; /* [key][axes]: what the keys' gain, added to */
  char *pair_gains[PEGEN_MAX_INPUTS]; /* token 0's row of what numbers of pairs gain, float32, added to */
  int64_t pair_gains_token[PEGEN_MAX_INPUTS]; /* strides in bytes */
  /* Gradients of scores are kept as biases are: [key][queries], of which the last tile gives to operands. */
  float *pair_sums;
  int64_t is_last;
} pegen_attention_gradient_tile;

/* A tile of queries of one head and its tangents, against keys [begin, tile.end). With the tangent of a score
 * S' = P (q' k + q k') times the derivative of the score, P as in gradients, the tile adds sums over keys:
 *
 *     columns += S' v + P v',   sums += S'.
 */
typedef struct pegen_attention_tangent_tile {
  pegen_attention_tile tile; /* first: tile.lse is what forward wrote */
  int64_t begin;
  const pegen_attention_tile *tangents; /* q', k' and v' where the tile has q, k and v, with strides of their own */
  float *columns; /* [value_dim][queries], those of a row of scores */
  float *sums; /* [queries] */
} pegen_attention_tangent_tile;

/* Keys behind the last one that rooms of pairs have: of those whose scores are summed together some may be none. */
enum { PEGEN_ATTENTION_PITCH = 16, PEGEN_ATTENTION_MORE_KEYS = 8 };

typedef void pegen_attend_gradient_function(const pegen_attention_gradient_tile *tile);
typedef void pegen_attend_tangent_function(const pegen_attention_tangent_tile *tile);
/* `count` rows of sums, times a factor, as rows of a tensor `token` bytes apart. */
typedef void pegen_attention_store_function(const float *sums, char *to, int64_t token, int64_t count, double factor);

/* Gradient functions for rows of q and k that come rotated, in the panels of pegen_attention_turned. They add float32
 * to the gradient of a row of q. */
typedef struct pegen_attention_turned_gradient {
  pegen_attend_gradient_function *attend[PEGEN_ROW_TYPES]; /* of v, out and its gradient; NULL: not turned */
  pegen_attend_gradient_function *attend_dots; /* of bfloat16 by dot products; NULL: none */
  int64_t tiles; /* of queries that go through the keys together: at most PEGEN_ATTENTION_TURNED_TILES */
  int64_t keys; /* of a panel: whole steps */
  int64_t step; /* as below */
  int64_t stretches; /* 1: what a row is turned by is a multiple of a rotation */
  int64_t of_operands; /* 1: what operands gain is gained so; 0: some rotate, and all gain pair by pair */
} pegen_attention_turned_gradient;

/* The emitted functions of one target. Their tiles are those of pegen_attention_code, of one head each. */
typedef struct pegen_attention_gradient_code {
  pegen_attend_gradient_function *attend[PEGEN_ROW_TYPES]; /* by PEGEN_NUMBER_; NULL: not compiled in */
  pegen_attend_gradient_function
      *attend_narrow[PEGEN_ROW_TYPES]; /* of tiles whose queries are in the first register; NULL: none */
  pegen_attend_gradient_function *attend_dots, *attend_narrow_dots; /* both, of bfloat16 by dot products; NULL: none */
  pegen_attend_gradient_function
      *attend_operands[PEGEN_ROW_TYPES]; /* of operands alone, by tiles that are not runs of the grid; NULL: attend */
  pegen_attention_store_function *store_keys[PEGEN_ROW_TYPES], *store_values[PEGEN_ROW_TYPES];
  int64_t step; /* keys that some may see the first of, so that others see the rest */
  pegen_attention_turned_gradient turned;
  /* Tangents, of rows of q and k that come turned where `turned` has functions; NULL: compiled without. */
  pegen_attend_tangent_function *tangent[PEGEN_ROW_TYPES];
} pegen_attention_gradient_code;

/* The form of attention (compiler/forms/attention.c). */
typedef struct pegen_attention {
  int64_t value_dim; /* Dv */
  int64_t paired; /* 1: pairs have something of their own, but those with a prefix token */
  int64_t placed; /* 1: positions are needed */
  int64_t n_numbers; /* of tokens, which pairs are computed from beside their positions */
  const pegen_attention_number *numbers;
  int64_t strips; /* bits: axes whose keys' coordinates are looked for (pegen_attention_strip) */
  int64_t hides; /* 1: the bias may be -infinity */
  int64_t tells; /* 1: tiles tell where they lost outputs, so that heads need not be looked through before */
  int64_t skips; /* 1: blocks of keys are asked for */
  int64_t bounded; /* bits: coordinates, numbers behind those of positions among them, that is asked by */
  int64_t by_rows; /* 1: made for the grid's positions alone, which some target walks by rows */
  int64_t n_blocks, n_leaves;
  const pegen_leaf *leaves;
  int64_t indexed; /* bits: operands read by index */
  int64_t lanes; /* of a leaf's row: n_blocks, or more that `prepare` reads */
  int64_t n_weights; /* of a bias that is a polynomial, whose positions count from a query of each tile; 0: none */
  int64_t prepared_bytes; /* of one head, a multiple of 64 */
  const pegen_attention_code *targets; /* [n_targets] */
  const pegen_attention_gradient_code *gradients; /* [n_targets]; NULL: there are none */
  const struct pegen_attention_few_code *few; /* [n_targets] of few queries (attention_few.h); NULL: there are none */
  int64_t n_scatters; /* sums of a head that operands' elements gain, of each block (those of a bias: of block 0) */
  const pegen_leaf *scatters; /* which: offsets[head][n_blocks]; operand -1: nothing of this sum */
  int64_t has_places; /* 1: coordinates of positions have gradients */
  int64_t n_sums; /* numbers of a token that gains are summed of: coordinates, and numbers of inputs; 0: none */
  int64_t gaining; /* bits: operands that have a gradient */
  int64_t keeps_biases; /* 1: where batches share positions, attention keeps biases of pairs */
  int64_t keeps; /* 1: gradients keep them and sums of what they gain */
  const pegen_gradient *weights; /* of a bias that is a polynomial: what its inputs and operands gain; NULL: nothing */
  const pegen_attention_turned *turned; /* [n_targets]; NULL: pairs are rotated, or nothing */
} pegen_attention;

/* Implemented by the driver, called by emitted code. */
/* Coordinates of tokens [first, first + count), numbers behind positions among them, less the origin, as rows,
 * [axis][stride]; 0 from count on. */
void pegen_attention_rows(const pegen_attention_places *places, int64_t first, int64_t count, int64_t stride,
                          double *out);

/* Displacements of a tile whose coordinates float32 does not hold, each rounded once: keys [first, first + count) less
 * its queries, with the other sign, [key][axis][queries]; the keys' own coordinates become 0 in `narrow`. wide, narrow:
 * of the keys, [axis][room]. Where all positions are int64 they are subtracted as such. */
void pegen_attention_displace(const pegen_attention_tile *tile, int64_t first, int64_t count, int64_t room,
                              const double *wide, float *narrow, int64_t queries, float *out);
/* Numbers of pairs, [key][pitch], of the tile's queries from lane `lane` on with keys [first, first + count); 0 of keys
 * from there on up to `room`. place: the coordinate of the queries that is where their rows of input `input` are. */
void pegen_attention_read_pairs(const pegen_attention_tile *tile, int64_t input, int64_t place, int64_t lane,
                                int64_t lanes, int64_t first, int64_t count, int64_t room, int64_t pitch, float *out);
/* What such numbers gain, [lane][pitch], is added. */
void pegen_attention_gain_pairs(const pegen_attention_gradient_tile *tile, int64_t input, int64_t lane, int64_t lanes,
                                int64_t first, int64_t count, int64_t pitch, const float *gains);
/* Displacements of the query of one lane, with their own sign: [axis][room]. */
void pegen_attention_displace_row(const pegen_attention_tile *tile, int64_t lane, int64_t first, int64_t count,
                                  int64_t room, const double *wide, float *out);

/* Rows [first, first + count) of keys, or of values, that are in pages, as float32: `width` numbers each. rows: of the
 * head, in page 0. */
void pegen_attention_read_pages(const pegen_attention_tile *tile, const char *rows, int64_t of_values, int64_t first,
                                int64_t count, pegen_attention_read_function *read, float *to, int64_t width);

/* Values of keys [first, first + count) as they come turned, at most PEGEN_ATTENTION_TURNED_KEYS. */
void pegen_attention_values(const pegen_attention_tile *tile, int64_t first, int64_t count, float *out);

/* From the states of blocks of keys [begin, end), behind `skip` prefix tokens: runs. step: what keys of a run are a
 * multiple of, counted from the prefix. */
void pegen_attention_runs(pegen_attention_seen *seen, int64_t skip, int64_t begin, int64_t end, int64_t step);
