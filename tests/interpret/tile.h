/* interpret/tile: a tile program executed on arrays in long double, rounding nothing: the oracle of all machines. */
#pragma once

#include "tile/tile.h"

#include <stdint.h>

/* One head. Scores and log-sum-exps are natural, not powers of two. */
typedef struct tile_call {
  tile_shape shape; /* rows of tiles as the machine would have them; channels and values of rows */
  int64_t queries, keys;
  const long double *in[TILE_TENSOR_COUNT]; /* [rows][width] of tensors that are loaded */
  long double *out[TILE_TENSOR_COUNT];      /* the same of those that are stored */
  long double *lse;                         /* [queries]: written by an online, read by weights */
  const long double *delta;                 /* [queries]; of gradients */
  long double scale;                        /* of products, in gradients that are scaled when they are stored */
  /* What a product becomes, -infinity where the query does not see the key; and its derivative by the product. */
  long double (*score)(void *context, long double product, int64_t query, int64_t key);
  long double (*derivative)(void *context, long double product, int64_t query, int64_t key);
  /* What a pair's score gains, by its product: to what the score reads. `to`: of a give. */
  void (*give)(void *context, unsigned to, long double gained, long double product, int64_t query, int64_t key);
  /* What sinks are, and gain of own queries; of programs without: nothing. */
  long double sink;
  void (*give_sink)(void *context, long double gained);
  /* A row of `width` channels, turned by its token's place. Among rows of queries, or of keys. */
  void (*turn)(void *context, bool of_keys, int64_t token, bool back, int width, const long double *row,
               long double *turned);
  /* R row of a key by the pair's displacement, or (back) R^T row of a query. */
  void (*rotate)(void *context, int64_t query, int64_t key, bool back, int width, const long double *row,
                 long double *rotated);
  void *context;
} tile_call;

/* Tiles that were loaded are NaN up to the next wait. */
void tile_interpret(arena *a, const tile_program *p, tile_call *call);
