/* cpu/rows: a row of channels times a token's coefficient vectors. */
#pragma once

#include "cpu/rotors.h"
#include "mlir/number.h"

enum { GATHER_MAX_LANES = 32, GATHER_MAX_SOURCES = 16 };

/* Lanes to be gathered: lane i is lane `lane[i]` of vectors[from[i]]; from -1: any value. */
typedef struct gather_request {
  int width, count;
  ir_value vectors[GATHER_MAX_SOURCES];
  int from[GATHER_MAX_LANES], lane[GATHER_MAX_LANES];
} gather_request;
int emit_gather_source(gather_request *g, ir_value v); /* the vector's number, which it gets where it has none */
ir_value emit_gather(ir *b, gather_request *g);

/* Computes coefficient vectors of a token from its block values and stores each at out + slot * width * 4: those of
 * chunk 0, which stand for every looped chunk's, or those of no looped chunk. emitters[chunk] evaluate the chunks of
 * blocks. */
void emit_coefficients(ir *b, arena *a, const plan *p, const plan_tile *t, chunk_emitter *emitters, bool looped,
                       ir_value out);

/* What the rows of one token share. */
typedef struct row_emitter {
  ir *b;
  arena *memory;
  const plan *p;
  const plan_tile *t;
  const cpu_target *target;
  int dtype;
  int out;             /* number_type of what is written: dtype, or one that is converted to */
  ir_value gain;       /* float32, of rows that are converted */
  ir_value weights;    /* pointer to float32 [head_dim], of rows that are normalised; null: of rows as they are */
  ir_value factor;     /* float32, of rows that are normalised: one over the root of their mean square */
  bool rounds;         /* bfloat16 by the processor's own instruction; pairs are permuted as 16-bit numbers */
  bool streaming;      /* stores go past the caches */
  ir_value *slots;     /* [n_slots] coefficient vectors */
  bool cuts_nan;       /* coefficients are loaded by math_cut_nan, so that rows need not look for NaN */
  bool by_chunks;      /* looped chunks are a loop of the row, too, and their coefficients stay in memory */
  ir_value coefficients; /* by_chunks: where */
} row_emitter;

/* Loads the coefficient vectors that emit_coefficients stored; by_chunks: those of no looped chunk, */
void emit_load_slots(row_emitter *r, ir_value coefficients);
/* and those of one (i64), in the place of chunk 0's. */
void emit_load_chunk(row_emitter *r, ir_value chunk);

/* A row in registers, or a group of its vectors (plan_tile) that are loaded before any is stored. Numbers stay
 * with vectors whose channels in no block are the row's. */
typedef struct row_vectors {
  ir_value *lanes; /* [n_vectors] */
  ir_value *numbers; /* [n_vectors]: i16, channels as they lie in memory, a pair's at its first vector; null: unknown */
  bool *kept; /* [n_vectors]: as they were loaded */
  bool *nan_is_cut; /* [n_vectors]: NaN are as math_cut_nan leaves them */
} row_vectors;

/* Arrays for a row's vectors, all null. */
row_vectors emit_vectors_new(row_emitter *r);
/* What the ops of a program do to the vectors of one group. */
row_vectors emit_vectors_load(row_emitter *r, int group, ir_value in);
row_vectors emit_vectors_apply(row_emitter *r, int group, const row_vectors *x);
row_vectors emit_vectors_add(row_emitter *r, int group, const row_vectors *x);
/* x's channels as a term of the plan takes them, in the lanes of vector j; null where the term takes none there. */
ir_value emit_vector_permuted(row_emitter *r, const plan *p, const row_vectors *x, int term, int j);
/* in_place (i1): out is where the row was loaded from, and vectors that were kept are not stored. */
void emit_vectors_store(row_emitter *r, int group, const row_vectors *y, ir_value out, ir_value in_place);

/* Channels of a row times its factor and their weights. */
ir_value emit_normalised(ir *b, ir_value x, ir_value factor, ir_value weights);

/* How far ahead rows are asked for, pegen_loop's: bytes into the nearest cache, and into the second; 0: not at all. */
typedef struct prefetch_ahead {
  ir_value nearest, second; /* i64 */
} prefetch_ahead;
prefetch_ahead emit_load_ahead(ir *b, ir_value loop);
/* Asks for so many bytes, into the nearest cache (1) or the second (2). */
void emit_prefetch_lines(ir *b, ir_value at, int bytes, int level);
/* Asks for what lies ahead of a row of so many bytes. */
void emit_prefetch(ir *b, prefetch_ahead ahead, ir_value row, int bytes);
