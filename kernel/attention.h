/* attention.h: the border between the driver of attention and the code that the compiler emits for it.
 *
 * The driver cuts the work into tiles of queries of one head; an emitted function goes through the keys
 * of one tile, a tile of keys at a time, with the queries in the lanes. Only int64_t, int32_t
 * arrays of even length, double and pointers, as in loop.h.
 */
#ifndef PEGEN_KERNEL_ATTENTION_H
#define PEGEN_KERNEL_ATTENTION_H

#include "loop.h"

/* Most queries of a tile, on any target; most float32 lanes of a register. */
enum { PEGEN_ATTENTION_QUERIES = 64 };

/* Most heads of a tile. */
enum { PEGEN_ATTENTION_HEADS = 4 };

/* One tile: queries of one head against its keys; or, where pairs of all heads are rotated alike, of some heads. */
typedef struct pegen_attention_tile {
  int64_t heads; /* 1 to those of pegen_attention_code */
  const char *q[PEGEN_ATTENTION_HEADS], *k[PEGEN_ATTENTION_HEADS], *v[PEGEN_ATTENTION_HEADS]; /* token 0 of each */
  char *out[PEGEN_ATTENTION_HEADS];
  int64_t q_token, k_token, v_token, out_token; /* strides in bytes */
  int64_t stage; /* 1: rows of keys and values are copied before they are used: their stride is unkind to caches */
  int64_t plain; /* keys [0, plain) have neither bias nor rotation: prefix tokens, or all where the queries are such */
  int64_t end; /* keys [0, end) are looked at; above 0 */
  int64_t free; /* keys below it are seen by every query of the tile; 0: masks must be looked at (a head with *spoilt,
                   and a bias that hides) */
  int64_t n_keys; /* of the head */
  int64_t *spoilt; /* 1: some key or value of the heads is not finite, so that what is not seen must be left out */
  double scale; /* of q k^T: the caller's factor times log2(e) */
  const double *leaves; /* of the head: [leaf][block] */
  const char *prepared; /* of the head: what `prepare` made of the leaves of a polynomial */
  const char *input[PEGEN_MAX_INPUTS]; /* of the head: token 0 of each input */
  int64_t input_token[PEGEN_MAX_INPUTS]; /* strides in bytes */
  float *weights; /* [weight][PEGEN_ATTENTION_QUERIES] of the queries: weigh writes, attend reads; 0 of empty lanes */
  const void *const *operands; /* data of the operands that are read by index, by operand: float32 */
  const struct pegen_attention_places *keys;
  int64_t tokens[PEGEN_ATTENTION_QUERIES]; /* of each lane; -1: the lane is empty */
  int32_t limits[PEGEN_ATTENTION_QUERIES]; /* a query sees keys below it */
  double positions[PEGEN_MAX_ROTOR_AXES][PEGEN_ATTENTION_QUERIES]; /* of the queries, from the origin of keys */
} pegen_attention_tile;

/* Where tokens are: positions of a tensor, or the built-in grid's. */
typedef struct pegen_attention_places {
  const char *positions; /* of token 0; NULL: the grid's */
  int64_t type; /* pegen_position_type */
  int64_t token, axis; /* strides in bytes */
  int64_t axes, skip;
  const int64_t *grid;
  double
      origin[PEGEN_MAX_ROTOR_AXES]; /* taken off every coordinate, so that differences keep their digits in float32 */
} pegen_attention_places;

typedef void pegen_attend_function(const pegen_attention_tile *tile);

/* The emitted functions of one target. */
typedef struct pegen_attention_code {
  int64_t lanes, vectors; /* queries of a tile: vectors * lanes */
  int64_t heads; /* most heads of a tile */
  pegen_attend_function *attend[PEGEN_ROW_TYPES]; /* by PEGEN_NUMBER_; NULL: not compiled in */
  pegen_attend_function *look[PEGEN_ROW_TYPES]; /* the same: sets *spoilt */
  /* Of a bias that is a polynomial: weights of the tile's queries from inputs of each number type; else NULL. */
  pegen_prepare_function *prepare; /* NULL: nothing to prepare */
  pegen_attend_function *weigh[PEGEN_ROW_TYPES];
} pegen_attention_code;

/* The form of attention (compiler/forms/attention.c). */
typedef struct pegen_attention {
  int64_t value_dim; /* Dv */
  int64_t placed; /* 1: positions are needed; 0: attention without bias or rotation */
  int64_t hides; /* 1: the bias may be -infinity */
  int64_t by_rows; /* 1: lanes of a vector are neighbours on the grid's last axis */
  int64_t n_blocks, n_leaves;
  const pegen_leaf *leaves;
  int64_t indexed; /* bits: operands read by index */
  int64_t lanes; /* of a leaf's row: n_blocks, or more that `prepare` reads */
  int64_t n_weights; /* of a bias that is a polynomial, whose positions count from a query of each tile; 0: none */
  int64_t prepared_bytes; /* of one head, a multiple of 64 */
  const pegen_attention_code *targets; /* [n_targets] */
} pegen_attention;

/* Implemented by the driver, called by the entries and by emitted code. */
int pegen_driver_attention(const pegen_driver *driver, const pegen_args *args, int part, int parts);
/* Coordinates of tokens [first, first + count), less the origin, as rows, [axis][stride]; 0 from count on. */
void pegen_attention_rows(const pegen_attention_places *places, int64_t first, int64_t count, int64_t stride,
                          double *out);

#endif
