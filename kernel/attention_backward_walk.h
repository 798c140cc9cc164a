/* attention_backward_walk.h: what the walks of attention's gradients know; see attention_backward.c. */
#pragma once

#include "attention_backward.h"
#include "attention_row_gains.h"
#include "attention_turner.h"
#include "weight_gains.h"

/* A head by whose rotors sums of keys, or of values, are turned: of q; or none, or they are 0. */
enum { PEGEN_FRAME_NONE = -1, PEGEN_FRAME_EMPTY = -2 };

/* Most rows that are asked for during a tile. */
enum { PEGEN_BACKWARD_AHEAD = 12 * PEGEN_ATTENTION_QUERIES };

/* Tiles of queries of one head that go through the keys together, where rows come rotated. */
typedef struct pegen_backward_tiles {
  pegen_attention_tile *tiles;
  int64_t count;
  float *queries; /* [tiles][queries][head_dim]: their rows */
  float *gained;  /* [tiles][queries][pitch]: what these gain */
  pegen_attention_panel panel;
} pegen_backward_tiles;

typedef struct pegen_attention_backward_walk {
  pegen_attention_walk walk;
  const pegen_attention_backward_call *call;
  const pegen_attention_gradient_code *code;
  pegen_attention_gradient_tile tile;
  pegen_attend_gradient_function *attend, *attend_narrow;
  int of_operands_alone;    /* in a walk of its own, behind that of rows */
  int64_t group;            /* heads of q of an item */
  float *key_sums, *value_sums; /* of the item; NULL: not wanted */
  pegen_attention_cut cut;
  int64_t next;    /* item, after this one; -1: none */
  int64_t run_begin, run_end; /* batches whose tiles follow each other, index by index; none: those of a batch do */
  int looks_ahead; /* 1: rows that are read next are asked for */
  const char *ahead[PEGEN_BACKWARD_AHEAD]; /* of q, k, v, out and its gradient, of inputs, and of what these gain */
  double *chunk_sums; /* [unit][chunk][elements] */
  float *pair_rooms;  /* of a cut that keeps pairs: [unit][chunk][2][pairs of a tile] */
  double *head_sums;  /* [n_scatters][n_blocks] */
  int of_pairs; /* 0: what coordinates and inputs gain is of another walk */
  double *place_sums[2]; /* of queries and keys, all heads; NULL: not wanted */
  pegen_row_gains row_gains[2]; /* the same */
  int64_t room; /* item whose room rows of inputs have that are not kept; -1: each its own */
  double *rows[PEGEN_ATTENTION_QUERIES]; /* of the tile's queries */
  double **tables;    /* [n_operands] */
  pegen_weights weights; /* of a bias that is a polynomial */
  int64_t step; /* keys that shares of an item's keys are whole runs of */
  const pegen_attention_turned_gradient *turns; /* rows of q and k come turned; NULL: they do not */
  pegen_backward_tiles together;
  int turns_values;
  pegen_attention_turner turner; /* of rows, and of values, that are turned */
  int64_t key_frame, value_frame; /* whose rotors key_sums and value_sums are turned by */
} pegen_attention_backward_walk;

/* What follows is of head `head` of q. is_spoilt: of its keys and values. */
PEGEN_INTERNAL void pegen_attention_backward_set_head(pegen_attention_backward_walk *w, int64_t batch, int64_t head,
                                                      int64_t is_spoilt);
/* Tiles [first, last) of a head that is set, against keys [begin, end): rows of q and k turned, and turned back. */
PEGEN_INTERNAL void pegen_attention_backward_turned(pegen_attention_backward_walk *w, int64_t batch, int64_t head,
                                                    int64_t first, int64_t last, int64_t begin, int64_t end,
                                                    int of_queries, int of_keys);
/* Sums of keys [begin, end) from the frame of a head into that of another. stretches: rows are turned by a multiple of
 * a rotation. */
PEGEN_INTERNAL void pegen_attention_backward_reframe(pegen_attention_backward_walk *w, float *sums, int64_t pitch,
                                                     int64_t begin, int64_t end, int64_t *frame, int64_t head,
                                                     int stretches);

#define PEGEN_BACKWARD_TILES_ROOM(w) \
  do { \
    const pegen_attention_turned_gradient *of = (w)->turns; \
    size_t row = sizeof(float) * (size_t)(w)->walk.driver->kernel->head_dim, \
           rows = (size_t)(of->tiles * (w)->walk.queries), \
           pitch = sizeof(float) * (size_t)pegen_attention_pitch((w)->walk.driver->kernel->head_dim); \
    (w)->together.tiles = __builtin_alloca(sizeof(pegen_attention_tile) * (size_t)of->tiles); \
    (w)->together.queries = PEGEN_STACK(rows * row); \
    (w)->together.gained = PEGEN_STACK(rows * pitch); \
    PEGEN_ATTENTION_PANEL_ROOM(&(w)->together.panel, (w)->walk.driver->kernel->head_dim, of->keys, \
                               (w)->turns_values ? of->keys : 0); \
  } while (0)
