/* attention_walk.h: tiles of queries and where they are, for attention and its gradients. */
#pragma once

#include "attention_seen.h"
#include "check_attention.h"

typedef struct pegen_attention_walk {
  const pegen_driver *driver;
  const pegen_attention *form;
  const pegen_args *args;
  const pegen_attention_call *call;
  pegen_attend_function *attend;
  int64_t lanes, queries; /* of a register, of a tile */
  int dots; /* 1: attend is that of dot products */
  int64_t heads, groups;  /* of a tile at most, and how many such make all heads */
  int64_t tokens, keys; /* N, M */
  int64_t skip, prefix; /* prefix tokens among the keys, among the queries: those of both end together */
  int64_t prefix_tiles, tiles; /* of a head */
  int64_t runs;                /* by rows: registers that cover the grid's last axis once */
  pegen_prepare_function *prepare; /* of a polynomial's leaves; NULL: nothing to prepare */
  pegen_attend_function *weigh;    /* NULL: the bias is no polynomial */
  double *leaves;
  char *prepared;
  pegen_attend_function *look;     /* NULL: every query sees every key */
  int64_t looked, looked_last; /* heads of k and v that were looked through, counted over all batches; -1: none */
  int64_t found; /* what was found in them */
  int64_t spoilt;
  int64_t lost;
  int asks; /* as pegen_attention_code.asks */
  int is_late; /* 1: heads are looked through when a tile has lost outputs */
  int64_t batch, head; /* that the tile is set for, the first of its heads; -1: none */
  pegen_attention_places places, key_places;
  pegen_attention_seen seen;   /* of a form that skips */
  int is_bounded;              /* 1: where keys are that stand at key_places.positions is known */
  const char *bounded;
  pegen_attention_tile tile;
} pegen_attention_walk;

/* All that a call's tiles share, with the functions of `target` that the processor wants. Room for leaves, prepared
 * values, weights and operands is the caller's (PEGEN_ATTENTION_ROOM). */
PEGEN_INTERNAL void pegen_attention_begin(pegen_attention_walk *w, const pegen_driver *driver, const pegen_args *args,
                                          const pegen_attention_call *call, int target, const pegen_tuning *tuning);
/* Rows of inputs that head `head` of q reads of its tokens and of keys, which heads may have in common. */
PEGEN_INTERNAL void pegen_attention_set_inputs(pegen_attention_walk *w, int64_t batch, int64_t head);
/* Where tokens of a batch are. */
PEGEN_INTERNAL void pegen_attention_set_batch(pegen_attention_walk *w, int64_t batch);
/* Which coordinates its keys have, of forms that ask. */
PEGEN_INTERNAL void pegen_attention_find_strips(pegen_attention_walk *w);
/* Coordinates of a token, less the origin. */
PEGEN_INTERNAL void pegen_attention_place(const pegen_attention_places *places, int64_t token, double *out);
/* Cuts a head's queries into tiles: of registers of neighbours in one row of the grid, or of any that follow each
 * other. */
PEGEN_INTERNAL void pegen_attention_cut_tiles(pegen_attention_walk *w, int64_t by_rows);
/* Makes what follows that of a batch and of `heads` heads from `head` on, or as many as there are. */
PEGEN_INTERNAL void pegen_attention_set_heads(pegen_attention_walk *w, int64_t batch, int64_t head);
/* Whether some key or value of the heads at hand is not finite, and it matters. */
PEGEN_INTERNAL int64_t pegen_attention_is_spoilt(pegen_attention_walk *w);
/* Tile `index` of the heads: its tokens, what they see and where they are. */
PEGEN_INTERNAL void pegen_attention_set_tile(pegen_attention_walk *w, int64_t index);
/* Copies a tile, with those rows of its positions that are in use. */
static inline void pegen_attention_copy_tile(const pegen_attention_walk *w, pegen_attention_tile *to,
                                             const pegen_attention_tile *from) {
  size_t axes = (size_t)(w->places.axes + w->form->n_numbers);
  pegen_copy_bytes(to, from, offsetof(pegen_attention_tile, positions) + axes * sizeof from->positions[0]);
}
/* 1 where a head's rows of two tensors, as wide as keys and as values, are not all finite, and it matters: some pairs
 * may not see each other. */
PEGEN_INTERNAL int64_t pegen_attention_spoils(pegen_attention_walk *w, const pegen_view *keys, const pegen_view *values,
                                              int64_t batch, int64_t head);

/* A key's row in pages, and the first key behind it that is in another page, `end` at most. */
static inline uintptr_t pegen_paged_row(const pegen_attention_pages *p, const char *rows, int64_t page, int64_t token,
                                        int64_t key) {
  int64_t index = key / p->size;
  return (uintptr_t)rows + (uintptr_t)(p->table[index] * page + (key - index * p->size) * token);
}
static inline int64_t pegen_page_end(const pegen_attention_pages *p, int64_t key, int64_t end) {
  int64_t next = (key / p->size + 1) * p->size;
  return next < end ? next : end;
}

/* The head of an input that head `head` of `heads` of q reads: of its own, of k's, or the one there is. */
static inline int64_t pegen_attention_input_head(const pegen_view *view, int64_t head, int64_t heads) {
  return view->size[PEGEN_HEAD] ? head / (heads / view->size[PEGEN_HEAD]) : 0;
}

/* Where the keys of the batch and heads at hand are, of forms that skip. */
PEGEN_INTERNAL void pegen_attention_bound(pegen_attention_walk *w);

/* Items [begin, end), tiles of queries of heads, where rows of q and k are turned at their own positions; target: of
 * the driver's. */
PEGEN_INTERNAL void pegen_attention_run_turned(pegen_attention_walk *w, int target, int64_t begin, int64_t end);

/* On the stack of the call. */
#define PEGEN_ATTENTION_ROOM(w) \
  do { \
    const pegen_driver *of = (w)->driver; \
    (w)->leaves = PEGEN_STACK(sizeof(double) * (size_t)((w)->form->n_leaves * (w)->form->lanes) + 64); \
    (w)->prepared = PEGEN_STACK((w)->form->prepared_bytes + 64); \
    (w)->tile.weights = PEGEN_STACK(sizeof(float) * (size_t)((w)->form->n_weights * PEGEN_ATTENTION_QUERIES) + 64); \
    const void **operands = __builtin_alloca(sizeof(void *) * (size_t)(of->kernel->n_operands + 1)); \
    for (int i = 0; i < of->kernel->n_operands; i++) \
      operands[i] = (const char *)(w)->args->operands[i]->data + (w)->args->operands[i]->byte_offset; \
    pegen_attention_seen *seen = &(w)->seen; \
    size_t blocks = (w)->form->skips ? (size_t)seen->pitch : 0, \
           axes = (size_t)((w)->places.axes + (w)->form->n_numbers); \
    seen->bounds = PEGEN_STACK(sizeof(float) * (2 * axes * blocks + 1)); \
    seen->wide = 0; \
    if ((w)->form->skips && (w)->form->n_weights) \
      seen->wide = PEGEN_STACK(sizeof(double) * (2 * (size_t)(w)->places.axes * blocks + 1)); \
    seen->states = PEGEN_STACK(sizeof(int32_t) * (blocks + 1)); \
    seen->runs = __builtin_alloca(sizeof(pegen_attention_run) * (blocks / 2 + 1)); \
    (w)->tile.seen = (w)->form->skips ? seen : 0; \
    size_t strip_keys = (w)->form->strips && (w)->keys <= PEGEN_STRIP_KEYS ? (size_t)(w)->keys : 0; \
    for (int64_t axis = 0; axis < (w)->places.axes; axis++) { \
      pegen_attention_strip *strip = &(w)->key_places.strips[axis]; \
      strip->count = 0; \
      int is_asked = (w)->form->strips >> axis & 1; \
      strip->places = PEGEN_STACK(is_asked ? sizeof(float) * PEGEN_STRIP_PLACES : 1); \
      strip->of_key = PEGEN_STACK(is_asked ? strip_keys + 1 : 1); \
    } \
    (w)->tile.leaves = (w)->leaves; \
    (w)->tile.prepared = (w)->prepared; \
    (w)->tile.operands = operands; \
  } while (0)
